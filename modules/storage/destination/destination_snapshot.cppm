// SPDX-License-Identifier: Apache-2.0
// Records what is at a destination, to detect later changes: only recorded files and folders are ever replaced or
// deleted. `folder_rule` and, for known formats, `checkpoint`'s `overwrite_rule` decide whether a destination may be
// replaced at all.
export module shardmesh.storage:destination_snapshot;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The identity of a file or folder: the fields in which a change would show.
struct file_identity {
  std::uint64_t device = 0, inode = 0;
  std::uint32_t kind = 0;  // S_IFMT bits
  std::int64_t size_bytes = 0;
  std::int64_t modified = 0, changed = 0;  // ns
  friend bool operator==(const file_identity&, const file_identity&) = default;
};

/// Names the kind in S_IFMT bits: "a FIFO", "a folder", ...
std::string_view name_of_kind(std::uint32_t kind);

struct destination_snapshot {
  std::optional<file_identity> self;             // no value when nothing is there
  std::map<std::string, file_identity> entries;  // of a folder; symbolic links are not followed

  bool is_file() const;
  bool is_folder() const;
  bool is_empty_folder() const { return is_folder() && entries.empty(); }
};

/// Records what is at `path`. Symbolic links are not followed.
/// \errors errc::io
/// Cost: one stat per entry.
result<destination_snapshot> look_at(const std::filesystem::path& path);
/// Records the file or folder that is open as `descriptor`, whatever its name is now.
result<destination_snapshot> look_at(int descriptor, const std::filesystem::path& name);

/// Returns nothing when `now` equals `before`; else names what is new, changed, or gone. With `after_rename`, a file's
/// time of change is not compared, because the rename set it. A folder's own times are never compared: its entries show
/// more.
std::optional<std::string> change_between(const destination_snapshot& before, const destination_snapshot& now,
                                          bool after_rename);

/// Deletes the entries of the open folder that are still as recorded; others stay.
void remove_seen(int descriptor, const destination_snapshot& seen);

}  // namespace shardmesh
