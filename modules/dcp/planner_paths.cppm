// SPDX-License-Identifier: Apache-2.0
// Not exported: the nested paths that planner_data may name. Not here: the pickle around them (metadata_writer).
module shardmesh.dcp:planner_paths;

import shardmesh.std;
import shardmesh.tree;
import shardmesh.catalog;

namespace shardmesh::dcp {

// The path that planner_data names for each entry, tensors first. PyTorch's dcp_to_torch_save nests entries by their
// paths and flattens what comes of it, which has to give the same keys: where lists have gaps or nothing that PyTorch
// would enter them for, or the outermost container is a list, the path is joined into one name from there on. Entries
// that no nesting holds together have their keys.
// Cost: O(entries + length of paths). Source: torch.distributed.checkpoint.format_utils, _nested_dict
std::vector<path> planner_paths(std::span<const output_tensor> tensors, std::span<const output_object> objects);

}  // namespace shardmesh::dcp
