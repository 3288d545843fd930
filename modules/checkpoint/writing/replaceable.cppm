// SPDX-License-Identifier: Apache-2.0
// replaceable: which folders an overwrite may replace: those that hold one checkpoint and nothing else. The rule
// stands in docs/formats.md. Not here: whether a folder is still what was looked at (seen_destination).
export module shardmesh.checkpoint:replaceable;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;

export namespace shardmesh {

/// The rule for checkpoints of every format: a folder that is one and nothing else. errc::destination_exists naming an
/// entry that does not belong to it. Cost: the folder's record of checksums, or its index, or its .metadata when
/// entries are not explained otherwise.
result<void> holds_one_checkpoint(const std::filesystem::path& folder, const seen_destination& seen);

/// `options` with that rule, where the caller gave none.
save_options replacing_checkpoints(save_options options);

}  // namespace shardmesh
