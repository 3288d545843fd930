// SPDX-License-Identifier: Apache-2.0
// Not exported: which folders an overwrite may replace: those that hold one checkpoint and nothing else. The rule
// stands in docs/formats.md. Not here: whether a folder is still what was looked at (seen_destination).
module shardmesh.checkpoint:replaceable;

import shardmesh.std;
import shardmesh.core;
import :seen_destination;

namespace shardmesh {

// `file` is one that `format_objects` made, whole or damaged. False when it cannot be read.
bool is_objects_file(const std::filesystem::path& file);

// errc::destination_exists naming an entry that does not belong to the checkpoint. Cost: the folder's record of
// checksums, or its index, or its .metadata when entries are not explained otherwise.
result<void> check_replaceable(const std::filesystem::path& folder, const seen_destination& seen);

}  // namespace shardmesh
