// SPDX-License-Identifier: Apache-2.0
// Not exported: a universal checkpoint, in which ds_to_universal.py put every parameter together. Not here: its files
// (parameter_files).
// Source: deepspeed.checkpoint.ds_to_universal, universal_checkpoint.load_hp_checkpoint_state
module shardmesh.deepspeed:universal;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh::deepspeed {

// The parameters of `step`/zero in the shapes that the model files say, their states, and what else was saved.
// errc::incomplete_save for a file or a parameter that is missing, errc::shape_mismatch where shapes disagree,
// errc::disagreement for files of other saves; those of the files. Each names the file.
result<std::unique_ptr<checkpoint_reader>> open_universal(const std::filesystem::path& folder,
                                                          std::filesystem::path step, const open_options& options);

}  // namespace shardmesh::deepspeed
