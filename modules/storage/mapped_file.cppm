// SPDX-License-Identifier: Apache-2.0
// A file's bytes as memory, read on access. The tensors in them are in `checkpoint`'s `tensor_map`.
export module shardmesh.storage:mapped_file;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A whole file as read-only memory during the lifetime of this object; its descriptor is closed at once. Later writes
/// to the file may be visible. Access to a page beyond the end of a shortened file raises SIGBUS, which no library can
/// turn into an error. `check` detects a shortened file before that.
class mapped_file {
 public:
  /// Maps a file.
  /// \errors errc::io when it cannot be opened or mapped; errc::bad_format when it is not a regular file;
  ///         errc::unsupported for a URL
  static result<std::shared_ptr<const mapped_file>> open(const std::filesystem::path& path);
  ~mapped_file();
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  /// Returns the bytes, which begin at a page of memory.
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  /// Checks that the file still has every byte. A file that was removed, or replaced by renaming, keeps its mapped
  /// contents and passes.
  /// \errors errc::io, naming the file, when it became shorter
  /// Cost: one system call.
  result<void> check() const;

 private:
  mapped_file(std::string path, std::uint64_t device, std::uint64_t inode, std::span<const std::byte> bytes)
      : path_(std::move(path)), device_(device), inode_(inode), bytes_(bytes) {}
  std::string path_;
  std::uint64_t device_, inode_;  // of the file that was mapped
  std::span<const std::byte> bytes_;
};

}  // namespace shardmesh
