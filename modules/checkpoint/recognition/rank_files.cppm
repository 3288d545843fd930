// SPDX-License-Identifier: Apache-2.0
// Not exported: files that ranks saved with torch.save, each with that rank's parts of DTensors and ShardedTensors, as
// one checkpoint of whole tensors. Reading one file is in torch_file's rank_part; DeepSpeed's folders are in room
// deepspeed.
module shardmesh.checkpoint:rank_files;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :rank_file_name;

namespace shardmesh {

// Opens the files of all ranks of one save. Entries that a file holds whole (plain tensors, replicated DTensors,
// objects) must be equal in all files that have them; a difference is a problem of that key. Random states may differ:
// each rank's becomes an entry of its own, with ".rank_N" appended to the key.
// \errors errc::incomplete_save for a rank without a file, and for files of saves by different numbers of ranks;
//         errc::dtype_mismatch, errc::shape_mismatch, errc::disagreement between ranks; those of torch_file::open; each
//         names the file and the key
result<std::unique_ptr<checkpoint_reader>> open_rank_files(const std::filesystem::path& folder,
                                                           const rank_file_group& group, const open_options& options);

}  // namespace shardmesh
