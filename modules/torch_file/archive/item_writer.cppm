// SPDX-License-Identifier: Apache-2.0
// item_writer: the executor's sink over a staged output: adds each item's head and tail, and computes checksums while
// the bytes are in the cache.
export module shardmesh.torch_file:item_writer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.catalog;
import :archive;

export namespace shardmesh::torch_file {

/// One item to be written: `size_bytes` of row-major elements at `data_begin` of a file. With `is_archive`, a
/// torch.save archive of a tensor (dtype, sizes) begins at `begin` and its elements at `data_begin`.
struct written_item {
  std::int32_t file = 0;
  std::int64_t begin = 0;
  std::int64_t data_begin = 0;
  std::int64_t size_bytes = 0;  // of the elements
  bool is_archive = false;
  dtype type = dtype::undefined;
  extents sizes;
  bool wants_crc32 = false;  // of the elements, which an archive has anyhow
};

/// Models item_sink; an item's slot is its index here. Different items may be written by different threads.
class item_writer {
 public:
  /// `source`: where the elements come from. What may change during the save is copied piece by piece, and the copy
  /// is what is summed and written.
  item_writer(staged_output& output, std::vector<written_item> items, const element_source& source);
  /// `bytes` at `first_byte` of the item's elements; front to back. The tail follows the last byte.
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes);
  /// Items without elements: nobody else writes their heads and tails. Call once.
  result<void> write_empty_items();
  /// errc::io when an item did not get all of its bytes: a bug of ours, never to be committed.
  result<void> check_complete() const;

  const std::vector<written_item>& items() const { return items_; }
  /// Checksum of item i, from `begin` to its end. Complete items only.
  digest128 digest(std::size_t i) const { return progress_[i].digest; }
  /// CRC-32 of item i's elements, where it was wanted. Complete items only.
  std::uint32_t crc32(std::size_t i) const { return progress_[i].crc32; }
  /// End of item i in its file.
  std::int64_t end(std::size_t i) const { return progress_[i].end; }

 private:
  struct running {
    xxh3_stream sum;
    stable_piece piece;
    std::optional<tensor_archive> archive;
    std::vector<std::byte> pending;  // of a small archive: its bytes so far, to be written in one call
  };
  struct progress {
    std::int64_t written = 0;
    std::uint32_t crc32 = 0;
    std::unique_ptr<running> work;  // while the item is being written
    digest128 digest;
    std::int64_t end = 0;
  };
  result<void> write_head(std::size_t i);
  result<void> write_tail(std::size_t i);
  // Of a small archive the bytes are kept until its tail; they come front to back.
  result<void> write_or_keep(std::size_t i, std::int64_t offset, std::span<const std::byte> bytes);
  staged_output& output_;
  bool copies_;
  std::vector<written_item> items_;
  std::vector<progress> progress_;
};

}  // namespace shardmesh::torch_file
