// SPDX-License-Identifier: Apache-2.0
// destination_conflict: checks that a destination neither is nor contains its source, because a write would replace the
// data that it reads.
export module shardmesh.checkpoint:destination_conflict;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Checks that `destination` is neither `source` nor inside it (symbolic links resolved); else errc::invalid_argument.
result<void> check_not_inside(const std::filesystem::path& destination, const std::filesystem::path& source);

/// Checks that writing to `destination` does not replace `file`, a file to be read. errc::invalid_argument when `file`
/// is `destination` or inside it, or is another name (a symbolic or hard link) of either; also when `destination` is
/// inside `file`. Covers the objects file beside a single file as well.
result<void> check_disjoint(const std::filesystem::path& destination, const std::filesystem::path& file);
/// Checks the same for a checkpoint: its path and all of its files. Cost: a few system calls per file.
result<void> check_disjoint(const std::filesystem::path& destination, const checkpoint_reader& source);

}  // namespace shardmesh
