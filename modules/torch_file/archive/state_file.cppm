// SPDX-License-Identifier: Apache-2.0
// torch_file::state_file: one file of torch.save while it is written: where its storages lie, and what lies around
// them. Not here: which file of which destination (save; a folder's writer), the pickle (state_pickle).
export module shardmesh.torch_file:state_file;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.storage;
import :item_writer;

export namespace shardmesh::torch_file {

/// A value of a file of torch.save: a contiguous tensor with a storage of its own, or what an archive has.
struct state_entry {
  std::string key;  // for errors
  path where;       // in the file's nested dict; empty: the file is this value
  dtype type = dtype::undefined;
  extents sizes;
  std::function<result<std::vector<std::byte>>()> archive;  // not empty: no tensor, but the value in this archive
};

/// The storages of a file; number i is record data/i.
struct state_storage {
  std::optional<std::size_t> entry;  // the tensor whose elements it holds, or
  std::vector<std::byte> bytes;      // what an archive has
  std::int64_t size_bytes = 0;
};

/// A file of torch.save in a staged output. In order: `make`; `place`; an `item_writer` of all items, into which
/// `write_archived` puts what archives have, and whoever has the elements those; `finish`.
class state_file {
 public:
  /// One nested dict of all entries, by their paths: names are keys of dicts, indices positions of lists, where None
  /// stands at those that no path names. `prefix`: of the archive's records ("archive" where PyTorch writes a stream).
  /// \errors errc::unsupported (a dtype that PyTorch lacks; an archive that is none, or of another byte order),
  ///         errc::duplicate_key, errc::invalid_argument (a path that leads through another); each names the key
  static result<state_file> make(std::span<const state_entry> entries, std::string prefix = "archive");

  /// Of the whole file.
  std::int64_t size_bytes() const { return size_bytes_; }
  /// Appends an item for each storage, as they lie in file number `file` of the output.
  void place(std::int32_t file, std::vector<written_item>& items);
  /// The item of an entry's elements, once it was placed; nothing for one that is an archive's.
  std::optional<std::int32_t> slot_of(std::size_t entry) const;
  result<void> write_archived(item_writer& writer) const;
  /// Writes what lies between and around the storages, with their checksums, once all items are complete.
  /// \returns where and what that was, in order: the file is made of these ranges and of the items
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
