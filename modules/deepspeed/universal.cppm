// SPDX-License-Identifier: Apache-2.0
// Not exported: reads a universal checkpoint, in which ds_to_universal.py merged every parameter. Its files are in
// parameter_files.
// Source: deepspeed.checkpoint.ds_to_universal, universal_checkpoint.load_hp_checkpoint_state
module shardmesh.deepspeed:universal;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh::deepspeed {

// Opens the parameters of `step`/zero in the shapes from the model files, their states, and everything else that was
// saved. errc::incomplete_save for a missing file or parameter, errc::shape_mismatch when shapes disagree,
// errc::disagreement for files of other saves, and the files' errors. Each names the file.
result<std::unique_ptr<checkpoint_reader>> open_universal(const std::filesystem::path& folder,
                                                          std::filesystem::path step, const open_options& options);

}  // namespace shardmesh::deepspeed
