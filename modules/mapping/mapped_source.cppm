// SPDX-License-Identifier: Apache-2.0
// Not exported: the elements of one tensor that a mapping makes.
module shardmesh.mapping:mapped_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;

namespace shardmesh {

// The checkpoint that mapped sources read, and its chunks as a source. Both must outlive the mapped sources.
struct mapping_input {
  const bound_mapping* bound = nullptr;
  checkpoint_reader* reader = nullptr;
  chunk_source* source = nullptr;
};

// Makes a source that shows a tensor as row-major elements of its dtype.
std::shared_ptr<const byte_source> make_mapped_source(const mapping_input& input, const bound_tensor& tensor,
                                                      std::string file);

}  // namespace shardmesh
