// SPDX-License-Identifier: Apache-2.0
// staged_output: a destination that appears whole or not at all. Every writer of the room goes through it.
// Not here: what is written.
export module shardmesh.storage:staged_output;

import shardmesh.std;
import shardmesh.core;
import :folder_rule;

export namespace shardmesh {

/// What a `staged_output` may replace, and whether its files are synced. By default it replaces nothing and syncs.
struct output_options {
  bool overwrite = false;     // replace what is there
  bool durable = true;        // fsync before and after the rename; without it a power cut can lose the new data
  folder_rule may_replace{};  // with `overwrite`: which folders; none given: `holds_recorded_files`
};

/// Files under a temporary name (".NAME.shardmesh-tmp-...") beside the destination; `commit` makes them durable and
/// renames them into place in one step. Without `commit`, the destructor removes them and the destination is as it was;
/// the destructor of a forked child's copy removes nothing.
/// Without `overwrite`, a destination that appears meanwhile is never replaced. With it, only what was there when the
/// output was made is: that is exchanged atomically, looked at once more, and only then deleted. A directory is
/// replaced only where `may_replace` allows it.
class staged_output {
 public:
  /// One file, or one directory, to be. errc::destination_exists unless `overwrite` (an empty directory may always be
  /// filled), and when it is neither a file nor a folder; errc::invalid_argument when the destination's folder does not
  /// exist; errc::io. Dead leftovers of the same destination are noted, and removed with `overwrite`.
  static result<staged_output> file(const std::filesystem::path& destination, output_options options = {});
  static result<staged_output> directory(const std::filesystem::path& destination, output_options options = {});
  /// Another process's part of what one process makes (see `folder()`), which never commits: adds files to a folder, or
  /// shares those that are there; shares the one file. errc::io when this process does not see it.
  static result<staged_output> join(const std::filesystem::path& folder, output_options options = {});
  staged_output(staged_output&&) noexcept;
  staged_output& operator=(staged_output&&) noexcept;
  ~staged_output();

  /// errc::no_space when the destination's file system has less room than what will be written. Call it before.
  result<void> reserve(std::int64_t bytes) const;
  /// Adds a file to a directory (or the one file, with an empty name): created now, empty. Returns its number.
  /// `name` is a plain file name. Not thread-safe.
  result<std::int32_t> add_file(std::string_view name);
  /// Writes `bytes` at `offset` of that file. Thread-safe; few descriptors are open at a time. Where there are more
  /// files than descriptors, small writes are gathered in up to 16 MiB of memory: they reach their file with later
  /// ones, with the next `add_file`, or with `prepare`, which returns their errors.
  result<void> write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes);
  /// What was written so far, read back. errc::io.
  result<void> read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const;
  /// Takes a file away again. Its number is not used afterwards. Not thread-safe.
  result<void> remove_file(std::int32_t file);
  /// fsync of the files that were added or written to since the last call, and of the folder, so that `commit` has only
  /// to rename. `commit` does it too. Closes every file: an error of `close` counts, also where nothing is synced.
  /// An error at the end of writing to a file stays: every later call returns it.
  result<void> prepare();
  /// `prepare`, rename, fsync of the parent. After an error the destination is as it was, also when the last fsync
  /// failed: the names are exchanged back, and a power cut may leave either of the two, whole. Where they cannot be
  /// exchanged back, the new one stays in place, and the error's hint says so and where the old one is.
  /// errc::destination_exists when it appeared or changed since the output was made, naming what is new.
  result<void> commit();
  /// What the user should know: leftovers that were found, what was added to the old folder while it was replaced.
  const std::vector<std::string>& notes() const;

  /// The directory, or the file once it was added, under its temporary name, absolute: where other processes `join`.
  const std::filesystem::path& folder() const;
  /// What a process that joined wrote stays: the one that made the directory goes on with it. Without this, the
  /// destructor of either takes the whole directory away (by one rename first: either that or `commit` comes to pass).
  void release();

 private:
  struct state;
  explicit staged_output(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
