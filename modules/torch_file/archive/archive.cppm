// SPDX-License-Identifier: Apache-2.0
// torch_file::archive: the bytes that torch.save writes around tensor data, computed without I/O, so that a writer can
// place an item anywhere and stream its data. Not here: reading (storage's zip, item).
export module shardmesh.torch_file:archive;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::torch_file {

/// The archive of torch.save, record by record: each call returns the bytes to write next, and the caller writes a
/// large record's data between `begin_record` and `end_record`. Offsets are relative to the archive's first byte; every
/// record's data begins at a multiple of 64. ZIP64 fields appear where PyTorch writes them.
/// Source: caffe2/serialize/inline_container.cc and miniz, PyTorch 2.13 (byte-identical).
class archive {
 public:
  /// Records lie under `prefix` + "/"; PyTorch's own prefix is "archive" for streams, the file's stem for files.
  explicit archive(std::string prefix = "archive");

  /// Local header and padding; `size` bytes of data follow.
  std::vector<std::byte> begin_record(std::string_view name, std::int64_t size_bytes);
  /// What follows the data; `crc32` is that of the data.
  std::vector<std::byte> end_record(std::uint32_t crc32);
  /// A whole small record.
  std::vector<std::byte> record(std::string_view name, std::span<const std::byte> data);
  /// The records before the storages: data.pkl, .format_version, .storage_alignment, byteorder.
  std::vector<std::byte> head(std::span<const std::byte> data_pkl);
  /// The records after them (version, .data/serialization_id), the directory and the end records.
  std::vector<std::byte> tail();
  /// Bytes of all that was returned or announced so far.
  std::int64_t size_bytes() const { return at_; }

 private:
  friend class tensor_archive;
  // The same, behind what `out` has already: an archive of a tensor is made for each chunk of a checkpoint.
  void begin_record(std::vector<std::byte>& out, std::string_view name, std::int64_t size_bytes);
  void end_record(std::vector<std::byte>& out, std::uint32_t crc32);
  void record(std::vector<std::byte>& out, std::string_view name, std::span<const std::byte> data);
  void head(std::vector<std::byte>& out, std::span<const std::byte> data_pkl);
  // `names_hash`: of the records so far and "version".
  void tail(std::vector<std::byte>& out, std::uint64_t names_hash);
  std::uint64_t hash_of_names() const;
  static std::uint64_t hash_of_tensor_names();

  struct entry {
    std::size_t name_end;  // in names_; it begins where the one before ends
    std::int64_t size_bytes, header_offset;
    std::uint32_t crc32;
  };
  // With the prefix and its slash.
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

/// One contiguous tensor as torch.save writes it: prefix, the tensor's row-major little-endian bytes, suffix.
class tensor_archive {
 public:
  /// \errors errc::unsupported for a dtype that PyTorch cannot save; errc::overflow
  static result<tensor_archive> make(dtype type, const extents& sizes);

  std::span<const std::byte> prefix() const { return prefix_; }
  std::int64_t data_bytes() const { return data_bytes_; }
  /// `crc32` is that of the data (see `crc32_of`); without data it is ignored.
  std::vector<std::byte> suffix(std::uint32_t crc32) const;
  std::int64_t suffix_bytes() const { return suffix_bytes_; }
  /// The whole item.
  std::int64_t size_bytes() const { return static_cast<std::int64_t>(prefix_.size()) + data_bytes_ + suffix_bytes_; }

 private:
  tensor_archive() = default;
  archive archive_;
  std::vector<std::byte> prefix_;
  std::int64_t data_bytes_ = 0, suffix_bytes_ = 0;
};

/// The `data.pkl` of one contiguous tensor without gradient: protocol 2, byte for byte what torch.save writes.
/// errc::unsupported for a dtype that PyTorch cannot save.
result<std::vector<std::byte>> tensor_pickle(dtype type, const extents& sizes);

/// An item that holds any pickled object without tensors (`data_pkl` is the whole pickle).
std::vector<std::byte> object_archive(std::span<const std::byte> data_pkl);

}  // namespace shardmesh::torch_file
