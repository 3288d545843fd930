// SPDX-License-Identifier: Apache-2.0
// A destination that appears whole or not at all. Every writer uses it. The formats decide what is written.
export module shardmesh.storage:staged_output;

import shardmesh.std;
import shardmesh.core;
import :folder_rule;

export namespace shardmesh {

/// The options of a `staged_output`. By default, it replaces nothing and syncs its files.
struct output_options {
  bool overwrite = false;         // replace an existing destination
  bool durable = true;            // fsync before and after the rename; without it, a power cut can lose the new data
  folder_rule may_replace{};      // with `overwrite`: decides which folders; empty: the default rule
  std::int64_t memory_bytes = 0;  // for the parts of an upload; 0: the store's default
};

/// Files under a temporary name (".NAME.shardmesh-tmp-...") beside the destination. `commit` makes them durable and
/// renames them into place in one step. Without `commit`, the destructor removes them and the destination stays as it
/// was. In a forked child, the destructor removes nothing.
/// Without `overwrite`, a destination that appears meanwhile is never replaced. With it, only what was there when the
/// output was made is replaced: it is exchanged atomically, examined again, and only then deleted. A directory is
/// replaced only where `may_replace` allows it.
/// If the destination is a URL, the files are written in the folder for temporary files (TMPDIR), and `commit` uploads
/// them, the description of a folder last. With `overwrite`, the old description is removed before its data is
/// replaced.
class staged_output {
 public:
  /// Creates an output for one file, or for one directory. An empty directory may always be filled. Dead leftovers of
  /// the same destination are noted, and removed with `overwrite`.
  /// \errors errc::destination_exists when the destination exists, unless `overwrite`, and when it is neither a file
  ///         nor a folder; errc::invalid_argument when the destination's folder does not exist; errc::unsupported for
  ///         a URL that no store writes; errc::io
  static result<staged_output> file(const std::filesystem::path& destination, output_options options = {});
  static result<staged_output> directory(const std::filesystem::path& destination, output_options options = {});
  /// Joins an output that another process made (see `folder()`), and never commits. In a folder, this process adds
  /// files or writes into existing ones; in a single-file output, all processes write into the one file.
  /// \errors errc::io when this process cannot see `folder`
  static result<staged_output> join(const std::filesystem::path& folder, output_options options = {});
  staged_output(staged_output&&) noexcept;
  staged_output& operator=(staged_output&&) noexcept;
  ~staged_output();

  /// Checks that the destination's file system, or that of the folder for temporary files, has room for `bytes`. Call
  /// it before writing.
  /// \errors errc::no_space, with both numbers; for a URL, the hint names the folder for temporary files
  result<void> reserve(std::int64_t bytes) const;
  /// Adds a file to a directory (or the single file, with an empty name): creates it empty and returns its number.
  /// `name` is a plain file name. Not thread-safe.
  result<std::int32_t> add_file(std::string_view name);
  /// Writes `bytes` at `offset` of that file. Thread-safe; few descriptors are open at a time. When there are more
  /// files than descriptors, small writes are gathered in up to 16 MiB of memory. A later write, the next `add_file`,
  /// or `prepare` writes them to their file, and `prepare` returns their errors.
  result<void> write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes);
  /// Reads back what was written so far. errc::io.
  result<void> read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const;
  /// Removes a file. Its number is not used afterwards. Not thread-safe.
  result<void> remove_file(std::int32_t file);
  /// Syncs (fsync) the folder, and the files that were added or written to since the last call, so that `commit` only
  /// has to rename. `commit` also calls it. Closes every file; an error of `close` counts even where nothing is synced.
  /// An error from a gathered write, fsync, or close is permanent: every later call of `prepare` returns it.
  result<void> prepare();
  /// Calls `prepare`, renames the files into place, and syncs the parent folder. After an error, the destination is as
  /// it was, even when the last fsync failed: the names are exchanged back. A power cut may then leave either the old
  /// one or the new one, whole. For this, the new folder stays under its temporary name if a second fsync fails; the
  /// error's hint names it. If the names cannot be exchanged back, the new one stays in place; the error's hint
  /// says so and names the location of the old one.
  /// \errors errc::destination_exists, naming what is new, when the destination appeared or changed since the output
  ///         was made
  result<void> commit();
  /// Returns notes for the user: leftovers that were found, and entries that were added to the old folder while it was
  /// replaced.
  const std::vector<std::string>& notes() const;

  /// Returns the absolute path of the directory, or of the file once it was added, under its temporary name. Other
  /// processes `join` it there.
  const std::filesystem::path& folder() const;
  /// Hands the files of a joined process over to the process that made the directory, which continues with them.
  /// Without this call, the destructor of either removes the whole directory. The removal starts with a rename, so that
  /// exactly one of the removal and `commit` succeeds.
  void release();

 private:
  struct state;
  explicit staged_output(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

}  // namespace shardmesh
