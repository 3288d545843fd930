// SPDX-License-Identifier: Apache-2.0
// Not exported: files that ranks saved with torch.save, each its part of DTensors and ShardedTensors, as one checkpoint
// of whole tensors. Not here: what one file says of its parts (torch_file's rank_part), DeepSpeed's folders.
module shardmesh.checkpoint:rank_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :rank_file_name;

namespace shardmesh {

// Opens the files of all ranks of one save. What is whole in a file (plain tensors, replicated DTensors, objects) is
// the same in each, or a problem of that key: but random states, which are each rank's own and get ".rank_N" behind the
// key.
// \errors errc::incomplete_save for a rank without a file, and for files of saves by other numbers of ranks;
//         errc::dtype_mismatch, errc::shape_mismatch, errc::disagreement between ranks; those of torch_file::open; each
//         names file and key
result<std::unique_ptr<checkpoint_reader>> open_rank_files(const std::filesystem::path& folder,
                                                           const rank_file_group& group, const open_options& options);

}  // namespace shardmesh
