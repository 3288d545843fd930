// SPDX-License-Identifier: Apache-2.0
// staged_output: a destination that appears whole or not at all. Every writer of the room goes through it.
// Not here: what is written.
module;
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
export module shardmesh.checkpoint:staged_output;

import shardmesh.core;

export namespace shardmesh {

struct output_options {
  bool overwrite = false;  // replace what is there
  bool durable = true;     // fsync before and after the rename; without it a power cut can lose the new data
};

/// Files under a temporary name (".NAME.shardmesh-tmp-...") beside the destination; `commit` makes them durable and
/// renames them into place in one step. Without `commit`, the destructor removes them and the destination is as it was.
/// An existing directory is exchanged atomically and only then deleted; one that holds anything but a checkpoint is
/// never replaced.
class staged_output {
 public:
  /// One file, or one directory, to be. errc::destination_exists unless `overwrite` (an empty directory may always be
  /// filled); errc::invalid_argument when the destination's folder does not exist; errc::io.
  static result<staged_output> file(const std::filesystem::path& destination, output_options options = {});
  static result<staged_output> directory(const std::filesystem::path& destination, output_options options = {});
  staged_output(staged_output&&) noexcept;
  staged_output& operator=(staged_output&&) noexcept;
  ~staged_output();

  /// Adds a file to a directory (or the one file, with an empty name): created now, empty. Returns its number.
  /// `name` is a plain file name. Not thread-safe.
  result<std::int32_t> add_file(std::string_view name);
  /// Writes `bytes` at `offset` of that file. Thread-safe; few descriptors are open at a time.
  result<void> write(std::int32_t file, std::int64_t offset, std::span<const std::byte> bytes);
  /// What was written so far, read back. errc::io.
  result<void> read(std::int32_t file, std::int64_t offset, std::span<std::byte> bytes) const;
  /// fsync of every file and of the folder, so that `commit` has only to rename. `commit` does it when it was not done.
  result<void> prepare();
  /// `prepare`, rename, fsync of the parent. After an error the destination is as it was.
  result<void> commit();

 private:
  struct state;
  explicit staged_output(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

/// errc::invalid_argument when `destination` is `source` or lies inside of it (symbolic links resolved).
result<void> check_not_inside(const std::filesystem::path& destination, const std::filesystem::path& source);

}  // namespace shardmesh
