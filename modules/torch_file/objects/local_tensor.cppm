// SPDX-License-Identifier: Apache-2.0
// Finds the local tensor inside a pickled DTensor, without mesh and placements. Not exported.
module shardmesh.torch_file:local_tensor;

import shardmesh.std;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// Returns the index of the local tensor of a pickled DTensor; empty for any other value.
// Source: torch/distributed/tensor/_api.py (its __dict__ has `_local_tensor` and `_spec`), Tensor.__reduce_ex__
std::optional<std::size_t> local_tensor_of(const torch_file::item& item, const pickle::value& value);

}  // namespace shardmesh::torch_file
