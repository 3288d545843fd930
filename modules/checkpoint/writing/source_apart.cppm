// SPDX-License-Identifier: Apache-2.0
// source_apart: a destination is never its own source, nor does it hold it: what is replaced would be what is read.
export module shardmesh.checkpoint:source_apart;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh {

/// errc::invalid_argument when `destination` is `source` or lies inside of it (symbolic links resolved).
result<void> check_not_inside(const std::filesystem::path& destination, const std::filesystem::path& source);

/// errc::invalid_argument when `file`, which is read, is `destination` or lies inside of it, or is another name (a
/// symbolic or hard link) of what is or lies there; or when `destination` lies inside of `file`. The same for the file
/// of objects beside a single file.
result<void> check_apart(const std::filesystem::path& destination, const std::filesystem::path& file);
/// The same for a checkpoint: its path and every file that it consists of. Cost: a few system calls per file.
result<void> check_apart(const std::filesystem::path& destination, const checkpoint_reader& source);

}  // namespace shardmesh
