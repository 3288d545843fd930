// SPDX-License-Identifier: Apache-2.0
// seen_destination: what stood at a destination at one time, to know later that it is still that and nothing else: only
// what was looked at is ever replaced or deleted. Not here: whether it may be replaced at all (replaceable).
export module shardmesh.storage:seen_destination;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// One file or folder, as far as a change of it would show.
struct file_identity {
  std::uint64_t device = 0, inode = 0;
  std::uint32_t kind = 0;  // S_IFMT bits
  std::int64_t size_bytes = 0;
  std::int64_t modified = 0, changed = 0;  // ns
  friend bool operator==(const file_identity&, const file_identity&) = default;
};

/// "a FIFO", "a folder", ... of S_IFMT bits.
std::string_view name_of_kind(std::uint32_t kind);

struct seen_destination {
  std::optional<file_identity> self;             // nothing: nothing is there
  std::map<std::string, file_identity> entries;  // of a folder; symbolic links are themselves

  bool is_file() const;
  bool is_folder() const;
  bool is_empty_folder() const { return is_folder() && entries.empty(); }
};

/// Symbolic links are not followed. errc::io. Cost: one stat per entry.
result<seen_destination> look_at(const std::filesystem::path& path);
/// What is open as `descriptor`, whatever its name is now.
result<seen_destination> look_at(int descriptor, const std::filesystem::path& name);

/// Nothing when `now` is what was seen `before`; else what is new, changed or gone, in words. A file's time of change
/// is not compared `after_rename`, which sets it; nor are a folder's own times, which its entries say better.
std::optional<std::string> change_between(const seen_destination& before, const seen_destination& now,
                                          bool after_rename);

/// Deletes the entries of the open folder that are still what was seen; others stay.
void remove_seen(int descriptor, const seen_destination& seen);

}  // namespace shardmesh
