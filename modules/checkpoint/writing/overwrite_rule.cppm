// SPDX-License-Identifier: Apache-2.0
// overwrite_rule: decides which folders an overwrite may replace: those that hold one checkpoint and nothing else. The
// rule is documented in docs/formats.md. destination_snapshot detects whether a folder has changed since it was
// inspected.
export module shardmesh.checkpoint:overwrite_rule;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Checks that a folder holds one checkpoint, of any format, and nothing else. errc::destination_exists naming an entry
/// that does not belong to it. Cost: reads the folder's record of checksums; its index, and then its .metadata, only
/// when entries remain unexplained.
result<void> holds_one_checkpoint(const std::filesystem::path& folder, const destination_snapshot& seen);

/// Returns `options` with that rule, unless the caller gave another one.
save_options replacing_checkpoints(save_options options);

}  // namespace shardmesh
