// SPDX-License-Identifier: Apache-2.0
// Not exported: a DCP folder that Megatron wrote (`torch_dist`) as its own load sees it: flat shards of the distributed
// optimizer as whole tensors, and beside the sharded entries those of `common.pt`. Not here: how a tensor was made flat
// (flattened).
module shardmesh.dcp:megatron;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :flattened;

namespace shardmesh::dcp {

inline constexpr std::string_view common_file = "common.pt";

// What `megatron_view` found beside its entries.
struct megatron_view_result {
  std::unique_ptr<checkpoint_reader> reader;
  std::set<std::string> common_keys;  // entries that lie in common.pt
};

// `plain` with these of its tensors whole, and with the entries of the folder's common.pt when it has one. A common.pt
// that cannot be read is a problem of the result, not an error.
// \errors those of `composed_reader::add_chunk`; a tensor in too many pieces
result<megatron_view_result> megatron_view(std::unique_ptr<checkpoint_reader> plain,
                                           const std::vector<flattened_tensor>& flattened, const open_options& options);

// One line for entries in buckets of the distributed optimizer: no file says which parameters' elements they hold.
std::optional<std::string> bucket_note(const catalog& stored);

}  // namespace shardmesh::dcp
