// SPDX-License-Identifier: Apache-2.0
// mapped_file: a file's bytes as memory, read when they are touched. Not here: what lies in them (checkpoint's
// tensor_map).
export module shardmesh.storage:mapped_file;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A whole file as read-only memory, for as long as this lives; its descriptor is closed at once. What is written to
/// the file meanwhile may show. A page that the file no longer reaches cannot be read: the system then raises SIGBUS,
/// which no library can turn into an error. `check` tells before that.
class mapped_file {
 public:
  /// errc::io when it cannot be opened or mapped, errc::bad_format when it is not a regular file, errc::overflow where
  /// it is larger than the address space.
  static result<std::shared_ptr<const mapped_file>> open(const std::filesystem::path& path);
  ~mapped_file();
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  /// Begins at a page of memory.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  /// Whether the file still has every byte; errc::io, naming it, when it became shorter. Cost: one system call. A file
  /// that was removed, or that another one replaced by renaming, stays what it was and passes.
  result<void> check() const;

 private:
  mapped_file(std::string path, std::uint64_t device, std::uint64_t inode, std::span<const std::byte> bytes)
      : path_(std::move(path)), device_(device), inode_(inode), bytes_(bytes) {}
  std::string path_;
  std::uint64_t device_, inode_;  // of the file that was mapped
  std::span<const std::byte> bytes_;
};

}  // namespace shardmesh
