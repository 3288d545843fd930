// SPDX-License-Identifier: Apache-2.0
// A torch.save file while it is being written: the places of its storages and the bytes around them. `save` and the
// folder writers choose the files; the pickle is in `state_pickle`.
export module shardmesh.torch_file:state_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.storage;
import :item_writer;

export namespace shardmesh::torch_file {

/// A value in a torch.save file: a contiguous tensor with its own storage, or the value of an archive.
struct state_entry {
  std::string key;  // for errors
  path where;       // in the file's nested dict; empty when the file is this value
  dtype type = dtype::undefined;
  extents sizes;
  // If set, the value is the root of this archive instead of a contiguous tensor.
  std::function<result<std::vector<std::byte>>()> archive;
};

/// The storages of a file. Storage i is record data/i.
struct state_storage {
  std::optional<std::size_t> entry;  // the tensor whose elements it holds, or
  std::vector<std::byte> bytes;      // the bytes from an archive
  std::int64_t size_bytes = 0;
};

/// A torch.save file in a staged output. Call `make` and `place`, make an `item_writer` of all items, call
/// `write_archived` with it, write the tensors' elements to it, and call `finish`.
class state_file {
 public:
  /// Plans one nested dict of all entries by their paths. Names are dict keys; indices are list positions, with None at
  /// positions without an entry. The archive's records begin with `prefix` ("archive" when PyTorch writes a stream).
  /// \errors errc::unsupported (a dtype that PyTorch lacks; bytes that are not an archive, or an archive of another
  ///   byte order), errc::duplicate_key, errc::invalid_argument (a path that leads through another entry); each names
  ///   the key
  static result<state_file> make(std::span<const state_entry> entries, std::string prefix = "archive");

  /// Returns the size of the whole file.
  std::int64_t size_bytes() const { return size_bytes_; }
  /// Appends one item per storage, at its place in file number `file` of the output.
  void place(std::int32_t file, std::vector<written_item>& items);
  /// Returns the slot of the item that holds an entry's elements, after `place`; empty for an entry from an archive.
  std::optional<std::int32_t> slot_of(std::size_t entry) const;
  result<void> write_archived(item_writer& writer) const;
  /// Writes the bytes between and around the storages, including the storages' checksums. All items must be complete.
  /// \returns the written ranges in order; the file consists of these ranges and the items
  result<std::vector<checksum_range>> finish(staged_output& output, const item_writer& writer,
                                             std::string_view name = {}) const;

 private:
  std::string prefix_;
  std::vector<std::byte> data_pkl_;
  std::vector<state_storage> storages_;
  std::vector<std::optional<std::size_t>> storage_of_;  // per entry
  std::int64_t size_bytes_ = 0;
  std::int32_t file_ = 0, first_slot_ = 0;
};

}  // namespace shardmesh::torch_file
