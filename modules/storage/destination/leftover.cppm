// SPDX-License-Identifier: Apache-2.0
// Finds and removes the files that killed runs left beside their destinations. A writer holds a lock on the files that
// it writes, so that other processes can tell whether it is still at work.
export module shardmesh.storage:leftover;

import shardmesh.std;
import shardmesh.core;
import :folder_rule;

export namespace shardmesh {

/// Whether the run that left a file or folder still writes it, judged by its lock.
enum class leftover_owner : std::uint8_t {
  dead,   // no process will finish it
  alive,  // being written
  // The owner is on another host of a shared file system, so that its lock is not visible here; or it was refused a
  // lock; or the file or folder cannot be opened. Under a URL: the upload is less than a day old.
  unknown
};

/// A file or folder under a temporary name. Under a URL: an upload in parts that no writer has finished, whose path is
/// the object's URL with "?uploadId=ID".
struct leftover {
  std::filesystem::path path;
  std::int64_t size_bytes = 0;
  leftover_owner owner = leftover_owner::unknown;
};

/// How `find_leftovers` and `remove_leftover` judge a leftover's owner, and whether it may be removed.
struct leftover_options {
  /// True: other hosts write to this file system too, so that only locks of this host's own runs count. Without a
  /// value, the type of the file system decides (network and user-space file systems are shared).
  std::optional<bool> shared{};
  /// Decides which folders that hold a whole checkpoint may be removed. Such a folder is the old checkpoint of a run
  /// that was killed while replacing it. An empty rule is the default one of `check_replaceable`.
  folder_rule may_replace{};
};

/// Finds the leftovers of runs that were writing `path`, which need not exist. When `path` is a folder, also finds
/// those of runs that were writing something in it. Ascending by path. Of a URL, finds unfinished uploads of the
/// object, and of the objects directly in the folder.
/// \errors errc::io when the parent folder of `path` does not exist, or when it or `path` itself cannot be listed; those
///         of the store
/// Cost: lists at most these two folders.
result<std::vector<leftover>> find_leftovers(const std::filesystem::path& path, const leftover_options& options = {});

/// Removes a dead leftover, after judging its owner again. Syncs the parent folder before it deletes entries of a
/// folder, because a rename by the killed run may not be durable yet.
/// \errors errc::destination_exists when the owner lives or cannot be judged, or when the leftover holds entries that
///         no shardmesh writer put there; errc::io
result<void> remove_leftover(const std::filesystem::path& path, const leftover_options& options = {});

/// Removes a whole file or folder that an earlier save wrote. It disappears in one rename; a killed removal leaves a
/// leftover under a temporary name, which `remove_leftover` removes. Symbolic links are refused. The rename of a folder
/// is synced before its entries are deleted, so that a power cut leaves no incomplete folder under its name.
/// \param may_replace  decides which folders may be removed; empty: the default rule of `check_replaceable`
/// \errors errc::destination_exists, naming the entry that does not belong to the checkpoint, or when the folder
///         changes meanwhile; errc::io. After an error the path is as it was, unless the error names the leftover.
/// Cost: one stat per entry, and one fsync for a folder.
result<void> discard_destination(const std::filesystem::path& path, const folder_rule& may_replace = {});

}  // namespace shardmesh

namespace shardmesh {

// Finds the leftovers of one destination, beside it.
result<std::vector<leftover>> find_leftovers_of(const std::filesystem::path& destination);

}  // namespace shardmesh
