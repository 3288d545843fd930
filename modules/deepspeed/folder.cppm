// SPDX-License-Identifier: Apache-2.0
// Recognises folders that DeepSpeed saved by the names in them, and finds the step in a run's folder. Reading the files
// is in reader.
export module shardmesh.deepspeed:folder;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::deepspeed {

/// Returns true for the folder of one step, and for a run's folder with a step that can be chosen. A step has files
/// named as ranks' model or optimizer states, or is a universal checkpoint. The chosen step is the one that a file
/// `latest` (or else `latest_universal`) names, or the only folder named global_step.... Returns false for a folder
/// that cannot be listed.
/// Cost: lists the folder, and the subfolders that have such a name.
bool holds_checkpoint(const std::filesystem::path& folder);

/// Returns the step's folder: `folder` itself, the one that `latest` names, or the only one.
/// \errors errc::io; errc::bad_format when there is no step, when there are several and no `latest`, or when `latest`
///         names a missing one; errc::unsafe_path when `latest` is not a plain name
result<std::filesystem::path> step_folder(const std::filesystem::path& folder);

}  // namespace shardmesh::deepspeed
