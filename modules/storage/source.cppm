// SPDX-License-Identifier: Apache-2.0
// Bytes that are read by range: local files, memory, and sections of both. Other kinds of sources can be added.
export module shardmesh.storage:source;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A run of bytes in a file.
struct file_range {
  std::string path;
  std::int64_t offset = 0, length = 0;
};

/// A range of a source, from `offset` on, and the memory for its bytes.
struct source_range {
  std::int64_t offset = 0;
  std::span<std::byte> out;
};

/// Random access to a run of bytes. Thread-safe. Every format's reader takes one.
class byte_source {
 public:
  virtual ~byte_source() = default;
  virtual std::int64_t size_bytes() const = 0;
  /// Fills `out` from [offset, offset + out.size()).
  /// \errors errc::out_of_bounds past the end, errc::io; both name the file
  virtual result<void> read(std::int64_t offset, std::span<std::byte> out) const = 0;
  /// Fills several ranges. A source on a server requests them at the same time; others read one after another. After an
  /// error, the content of the ranges' memory is unspecified.
  /// \errors those of `read`
  virtual result<void> read_ranges(std::span<const source_range> ranges) const;
  /// Returns how many bytes can be read in the time that one more request costs. A reader of several ranges reads
  /// through smaller gaps between them. 0 for a source without requests.
  virtual std::int64_t bytes_per_request() const { return 0; }
  /// Returns a text that differs whenever the content under the URL of an object differs, such as an ETag. Empty when
  /// there is none: the object is then not kept in a `use_store_cache`.
  virtual std::string version() const { return {}; }
  /// Returns the file's path, for messages.
  virtual std::string name() const = 0;
  /// Returns where one file holds these bytes unchanged: byte i is the file's byte `offset` + i. Returns nothing when
  /// they are decoded or computed, or lie in memory.
  virtual std::optional<file_range> plain_file() const { return std::nullopt; }
  /// Returns how many of the bytes [offset, offset + length) the file system stores: the holes of a sparse file do not
  /// count. Returns `length` when there is no file, or when the file system cannot tell.
  /// Cost: none for a file without holes that is already open; otherwise two system calls for each run of data.
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

/// Bytes in memory, owned. A copy of the source shares them.
class owned_source final : public byte_source {
 public:
  owned_source(std::vector<std::byte> bytes, std::string name);
  /// Shares the bytes with their other owners.
  /// Precondition: `bytes` is not null.
  owned_source(std::shared_ptr<const std::vector<std::byte>> bytes, std::string name);
  std::int64_t size_bytes() const override { return view_.size_bytes(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  std::string name() const override { return view_.name(); }

 private:
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  memory_source view_;
};

/// The bytes [offset, offset + length) of another source, which must outlive it.
/// Precondition: the range lies within the source.
class section_source final : public byte_source {
 public:
  section_source(const byte_source& whole, std::int64_t offset, std::int64_t length)
      : whole_(whole), offset_(offset), length_(length) {}
  std::int64_t size_bytes() const override { return length_; }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  result<void> read_ranges(std::span<const source_range> ranges) const override;
  std::int64_t bytes_per_request() const override { return whole_.bytes_per_request(); }
  std::string name() const override { return whole_.name(); }
  std::optional<file_range> plain_file() const override;
  std::int64_t stored_bytes(std::int64_t offset, std::int64_t length) const override {
    return whole_.stored_bytes(offset_ + offset, length);
  }

 private:
  const byte_source& whole_;
  std::int64_t offset_, length_;
};

/// A pool of at most `max_open` open files (and at most a fifth of the process's limit). The least recently used
/// descriptor is closed, and reopened when needed; a read waits while all are in use. A handle: copies share the pool,
/// and so do the sources that it returned. Thread-safe.
class file_pool {
 public:
  explicit file_pool(std::size_t max_open = 128);
  file_pool(const file_pool&);
  file_pool& operator=(const file_pool&);
  ~file_pool();

  /// Returns a source of this file, or of the object of a URL, which takes no descriptor. A read from it fails with
  /// errc::io once the file or object has been written to, or its name refers to another one.
  /// \errors errc::io when it cannot be opened; errc::bad_format when it is not a regular file. A FIFO, a device, or a
  ///         folder is not opened at all, so that the call neither blocks nor has effects. For a URL: those of
  ///         `store_of` and `store::open`.
  result<std::unique_ptr<byte_source>> open(const std::filesystem::path& path);

  /// Keeps the lists of folders of the thread's `places::remembered_answers`, and compares the versions of objects with
  /// them: of those that were opened before, and of those that `open` opens later. An object that another writer has
  /// replaced meanwhile is an error of `open`, so that a checkpoint never consists of objects of two saves.
  /// \errors errc::io when an object was replaced; those of `store::list`
  result<void> keep_lists();

 private:
  struct state;
  std::shared_ptr<state> state_;
};

/// Checks that the bytes [offset, offset + length) of a source may be held in memory together. Every read of a whole
/// file or record passes through this function, so that a file of a few kilobytes cannot cost gigabytes. Precondition:
/// the range lies within the source.
/// \errors errc::bad_format when they exceed `limit_bytes`, or are mostly holes of a sparse file, that is, exceed a
///         sixty-fourth of `limit_bytes` plus 16 bytes for each stored byte
/// Cost: none up to 1 MiB; see `byte_source::stored_bytes`.
result<void> check_readable(const byte_source& source, std::int64_t offset, std::int64_t length,
                            std::int64_t limit_bytes);

/// Reads a whole file.
/// \errors errc::io; those of `check_readable`
result<std::vector<std::byte>> read_file(const std::filesystem::path& path, std::int64_t limit_bytes);
/// Reads a whole source, with the same errors.
result<std::vector<std::byte>> read_all(const byte_source& source, std::int64_t limit_bytes);
/// Reads the bytes [offset, offset + length) of a source, with the same errors, and errc::out_of_bounds past its end.
result<std::vector<std::byte>> read_range(const byte_source& source, std::int64_t offset, std::int64_t length,
                                          std::int64_t limit_bytes);

}  // namespace shardmesh
