// SPDX-License-Identifier: Apache-2.0
// tensor_binding: where the slots of a distribution are in this rank's memory. Not here: who owns that memory.
export module shardmesh.transfer:binding;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The memory of this rank's slots of one transfer's side: slot i is `slots[i]`. A slot holds its fragments at their
/// `local_offsets`; its view has the side's dtype, any strides, and may be larger than the fragments need. A rank that
/// holds nothing gives no slots; slots without fragments may be empty views.
struct tensor_binding {
  std::vector<tensor_view> slots;
};

}  // namespace shardmesh
