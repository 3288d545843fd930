// SPDX-License-Identifier: Apache-2.0
// leftover: what runs that were killed left beside their destinations. Whoever writes holds a lock on what it writes,
// so that others can tell whether it still is at work.
export module shardmesh.storage:leftover;

import shardmesh.std;
import shardmesh.core;
import :folder_rule;

export namespace shardmesh {

/// Whether the run that left a file or folder still writes it: told by the lock that it holds.
enum class leftover_owner : std::uint8_t {
  dead,    // nobody will finish it
  alive,   // being written
  unknown  // of another host that shares the file system, whose locks are not seen here; of a run that was refused a
           // lock; or it cannot be opened
};

/// A file or folder under a temporary name.
struct leftover {
  std::filesystem::path path;
  std::int64_t size_bytes = 0;
  leftover_owner owner = leftover_owner::unknown;
};

/// How `find_leftovers` and `remove_leftover` judge whose a leftover is, and whether it may go.
struct leftover_options {
  /// Other hosts write to this file system too, so that only locks of this host's own runs are believed. Nothing: it is
  /// asked (network and user-space file systems are shared).
  std::optional<bool> shared{};
  /// Which folders are taken away that hold a whole checkpoint: the old one of a run that was killed while it replaced
  /// it. None given: `holds_recorded_files`.
  folder_rule may_replace{};
};

/// What runs left that were to write `path`, which need not exist; and, when it is a folder, those that were to write
/// something in it. Ascending by path. errc::io when neither `path` nor its folder exist or can be listed.
/// Cost: lists two folders.
result<std::vector<leftover>> find_leftovers(const std::filesystem::path& path, const leftover_options& options = {});

/// Takes a dead leftover away: its owner is asked for again. errc::destination_exists when the owner lives or cannot be
/// judged, or when it holds things that no writer of ours put there; errc::io.
result<void> remove_leftover(const std::filesystem::path& path, const leftover_options& options = {});

}  // namespace shardmesh

namespace shardmesh {

// Those of one destination, beside it.
result<std::vector<leftover>> find_leftovers_of(const std::filesystem::path& destination);

}  // namespace shardmesh
