// SPDX-License-Identifier: Apache-2.0
// Not exported: the nested paths that planner_data may name. The pickle around them is in `metadata_writer`.
module shardmesh.dcp:planner_paths;

import shardmesh.std;
import shardmesh.tree;
import shardmesh.checkpoint_core;

namespace shardmesh::dcp {

// Returns the path that planner_data names for each entry, tensors first. PyTorch's dcp_to_torch_save nests entries by
// their paths and flattens the result, which has to give the same keys. This fails at a list with gaps, at a list that
// PyTorch would not enter, and when the outermost container is a list. From that point on, the path is joined into one
// name. When no nesting gives the same keys, each entry's path is its key.
// Cost: O(entries + length of paths). Source: torch.distributed.checkpoint.format_utils, _nested_dict
std::vector<path> planner_paths(std::span<const output_tensor> tensors, std::span<const output_object> objects);

}  // namespace shardmesh::dcp
