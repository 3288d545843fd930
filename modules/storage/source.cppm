// SPDX-License-Identifier: Apache-2.0
// storage: bytes that are read by range. Local files first; anything that answers ranges can follow.
export module shardmesh.storage:source;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A run of bytes of a file.
struct file_range {
  std::string path;
  std::int64_t offset = 0, length = 0;
};

/// Random access to a run of bytes. Thread-safe. Every reader of a format takes one of these.
class byte_source {
 public:
  virtual ~byte_source() = default;
  virtual std::int64_t size_bytes() const = 0;
  /// Fills `out` from [offset, offset + out.size()). errc::out_of_bounds past the end, errc::io; both name the file.
  virtual result<void> read(std::int64_t offset, std::span<std::byte> out) const = 0;
  /// The file's path for messages.
  virtual std::string name() const = 0;
  /// Where these bytes lie as they are, in one file: byte i is the file's byte `offset` + i. Nothing when they are made
  /// on the way (decoded, computed), or lie in memory.
  virtual std::optional<file_range> plain_file() const { return std::nullopt; }
  /// How many of the bytes [offset, offset + length) the file system stores: the holes of a sparse file do not count.
  /// `length` where there is no file, or where the file system cannot tell. Cost: none for a file without holes that is
  /// already open; two system calls for each run of data otherwise.
  virtual std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const {
    static_cast<void>(offset);
    return length;
  }
};

/// Bytes in memory, not owned.
class memory_source final : public byte_source {
 public:
  memory_source(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  std::int64_t size_bytes() const override { return static_cast<std::int64_t>(bytes_.size()); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  std::string name() const override { return name_; }

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
};

/// The bytes [offset, offset + length) of another source, which must outlive it.
/// Precondition: the range lies within.
class section_source final : public byte_source {
 public:
  section_source(const byte_source& whole, std::int64_t offset, std::int64_t length)
      : whole_(whole), offset_(offset), length_(length) {}
  std::int64_t size_bytes() const override { return length_; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  std::string name() const override { return whole_.name(); }
  std::optional<file_range> plain_file() const override;
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return whole_.stored_bytes(offset_ + offset, length);
  }

 private:
  const byte_source& whole_;
  std::int64_t offset_, length_;
};

/// Open files, at most `max_open` (and a fifth of what the process may open) at a time: the least recently used
/// descriptor is closed and reopened when needed; a read waits while all of them are in use. A handle: copies are the
/// same pool, and so are the sources that it gave. Thread-safe.
class file_pool {
 public:
  explicit file_pool(std::size_t max_open = 128);
  file_pool(const file_pool&);
  file_pool& operator=(const file_pool&);
  ~file_pool();

  /// A source of this file. errc::io when it cannot be opened, errc::bad_format when it is
  /// not a regular file: a FIFO, a device or a folder is not opened at all, so it neither blocks nor does anything.
  /// Reading from it is errc::io once the file was written to, or another one has its name.
  result<std::unique_ptr<byte_source>> open(const std::filesystem::path& path);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

/// Whether the bytes [offset, offset + length) of a source may be held in memory together.
/// \errors errc::invalid_argument: they are more than `limit_bytes`; errc::bad_format: they are mostly the holes of a
///         sparse file, that is more than a sixty-fourth of `limit_bytes` and 16 bytes for each one that is stored.
/// Every read of a whole file or record passes through this function: a file of a few kilobytes costs no gigabytes.
/// Cost: none up to 1 MiB; see `byte_source::stored_bytes`. Precondition: the range lies within.
result<void> check_readable(const byte_source& source, std::int64_t offset, std::int64_t length,
                            std::int64_t limit_bytes);

/// The whole file. errc::io; those of `check_readable`.
result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::int64_t limit_bytes);
/// The whole source, likewise.
result<std::vector<std::byte>> read_all(const byte_source& source, std::int64_t limit_bytes);
/// The bytes [offset, offset + length) of a source, likewise. errc::out_of_bounds past its end.
result<std::vector<std::byte>> read_range(const byte_source& source, std::int64_t offset, std::int64_t length,
                                          std::int64_t limit_bytes);

}  // namespace shardmesh
