// SPDX-License-Identifier: Apache-2.0
// folder: which folders DeepSpeed saved, by the names in them, and the one step of a run's folder. Not here: what the
// files hold (reader).
export module shardmesh.deepspeed:folder;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::deepspeed {

/// Whether `folder` is one step (it has files named as ranks' model or optimizer states, or is a universal checkpoint)
/// or a run's folder with a step in it: one that a file `latest` names (without it `latest_universal`), or the only one
/// that is named global_step.... False for what cannot be listed.
/// Cost: lists the folder, and those in it that have such a name.
bool holds_checkpoint(const std::filesystem::path& folder);

/// The step's folder: `folder` itself, or what `latest` says, or the only one there is.
/// \errors errc::io; errc::bad_format when there is none, several and no `latest`, or `latest` names one that is not
///         there; errc::unsafe_path when `latest` is no plain name
result<std::filesystem::path> step_folder(const std::filesystem::path& folder);

}  // namespace shardmesh::deepspeed
