// SPDX-License-Identifier: Apache-2.0
// Computes, without I/O, the bytes that torch.save writes around tensor data. A writer can thus place an archive
// anywhere and stream its data. Archives are read by storage's zip and by `item`.
export module shardmesh.torch_file:archive;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::torch_file {

/// A torch.save archive, built record by record. Each call returns the bytes to write next. The caller writes a large
/// record's data between `begin_record` and `end_record`. Offsets are relative to the archive's first byte, and every
/// record's data begins at a multiple of 64. ZIP64 fields appear where PyTorch writes them.
/// Source: caffe2/serialize/inline_container.cc and miniz, PyTorch 2.13 (byte-identical).
class archive {
 public:
  /// Names every record `prefix` + "/" + name. PyTorch's prefix is "archive" for streams, the file's stem for files.
  explicit archive(std::string prefix = "archive");

  /// Returns the record's local header and padding. The caller then writes `size_bytes` bytes of data.
  std::vector<std::byte> begin_record(std::string_view name, std::int64_t size_bytes);
  /// Returns the bytes that follow the data. `crc32` is the data's CRC-32.
  std::vector<std::byte> end_record(std::uint32_t crc32);
  /// Returns a small record as a whole.
  std::vector<std::byte> record(std::string_view name, std::span<const std::byte> data);
  /// Returns the records before the storages: data.pkl, .format_version, .storage_alignment, and byteorder.
  std::vector<std::byte> head(std::span<const std::byte> data_pkl);
  /// Returns everything after the storages: version, .data/serialization_id, the directory, and the end records.
  std::vector<std::byte> tail();
  /// Returns the size of everything returned so far, including the announced record data.
  std::int64_t size_bytes() const { return at_; }

 private:
  friend class tensor_archive;
  // These overloads append to `out`. A checkpoint makes one tensor archive per chunk, and this saves a buffer per call.
  void begin_record(std::vector<std::byte>& out, std::string_view name, std::int64_t size_bytes);
  void end_record(std::vector<std::byte>& out, std::uint32_t crc32);
  void record(std::vector<std::byte>& out, std::string_view name, std::span<const std::byte> data);
  void head(std::vector<std::byte>& out, std::span<const std::byte> data_pkl);
  // `names_hash` is the hash of the names of all records so far and of "version".
  void tail(std::vector<std::byte>& out, std::uint64_t names_hash);
  std::uint64_t hash_of_names() const;
  static std::uint64_t hash_of_tensor_names();

  struct entry {
    std::size_t name_end;  // in names_; the name begins at the previous entry's end
    std::int64_t size_bytes, header_offset;
    std::uint32_t crc32;
  };
  // Returns the name with the prefix and its slash.
  std::string_view full_name(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : entries_[i - 1].name_end;
    return std::string_view(names_).substr(begin, entries_[i].name_end - begin);
  }
  std::string prefix_;
  std::int64_t at_ = 0;
  std::vector<entry> entries_;
  std::string names_;  // full names of all entries
  std::uint64_t combined_crc_ = 0;
};

/// One contiguous tensor as torch.save writes it: a prefix, the row-major little-endian elements, and a suffix.
class tensor_archive {
 public:
  /// \errors errc::unsupported for a dtype that PyTorch cannot save; errc::overflow
  static result<tensor_archive> make(dtype type, const extents& sizes);

  std::span<const std::byte> prefix() const { return prefix_; }
  std::int64_t data_bytes() const { return data_bytes_; }
  /// Returns the bytes after the data. `crc32` is the data's CRC-32 (see `crc32_of`); it is ignored when there is no
  /// data.
  std::vector<std::byte> suffix(std::uint32_t crc32) const;
  std::int64_t suffix_bytes() const { return suffix_bytes_; }
  /// Returns the size of prefix, data, and suffix.
  std::int64_t size_bytes() const { return static_cast<std::int64_t>(prefix_.size()) + data_bytes_ + suffix_bytes_; }

 private:
  tensor_archive() = default;
  archive archive_;
  std::vector<std::byte> prefix_;
  std::int64_t data_bytes_ = 0, suffix_bytes_ = 0;
};

/// Returns the protocol-2 `data.pkl` of a contiguous tensor without gradient, byte for byte as torch.save writes it.
/// \errors errc::unsupported for a dtype that PyTorch cannot save; errc::overflow
result<std::vector<std::byte>> tensor_pickle(dtype type, const extents& sizes);

/// Returns why no file of PyTorch can hold an entry's name: Python cannot read a text that is not UTF-8, except for
/// lone surrogates. Returns nothing when a file can.
std::optional<error> problem_of_name(std::string_view key);

/// Returns an archive of a pickled object without tensors. `data_pkl` is the whole pickle.
std::vector<std::byte> object_archive(std::span<const std::byte> data_pkl);

}  // namespace shardmesh::torch_file
