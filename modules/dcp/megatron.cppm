// SPDX-License-Identifier: Apache-2.0
// Not exported: shows a DCP folder that Megatron wrote (`torch_dist`) as Megatron's own load sees it. Flat shards of
// the distributed optimizer become whole tensors, and the entries of `common.pt` stand beside the sharded ones.
// `flattened` describes how a tensor was flattened.
module shardmesh.dcp:megatron;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :flattened;

namespace shardmesh::dcp {

inline constexpr std::string_view common_file = "common.pt";

// The reader that `megatron_view` made, and the keys that it found in `common.pt`.
struct megatron_view_result {
  std::unique_ptr<checkpoint_reader> reader;
  std::set<std::string> common_keys;  // entries that lie in common.pt
};

// Returns a reader that shows `plain` with the `flattened` tensors whole, and with the entries of the folder's
// common.pt when it has one; `common` has its bytes if it is not a file of the folder. A common.pt that cannot be read
// is a problem of the result, not an error.
// \errors those of `composed_reader::add_chunk`; errc::bad_format for a tensor in too many pieces
result<megatron_view_result> megatron_view(std::unique_ptr<checkpoint_reader> plain,
                                           const std::vector<flattened_tensor>& flattened, const open_options& options,
                                           const std::shared_ptr<const byte_source>& common);

// Returns a note on entries in buckets of the distributed optimizer: no file says which parameters' elements they hold.
std::optional<std::string> bucket_note(const catalog& stored);

}  // namespace shardmesh::dcp
