// SPDX-License-Identifier: Apache-2.0
// The executor's sink over a staged output. It adds each item's head and tail, and computes checksums while the bytes
// are in the cache.
export module shardmesh.torch_file:item_writer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :archive;

export namespace shardmesh::torch_file {

/// One item to write: `size_bytes` of row-major elements at `data_begin` of a file. With `is_archive`, the item is a
/// torch.save archive of a tensor (dtype, sizes): it begins at `begin`, its elements at `data_begin`.
struct written_item {
  std::int32_t file = 0;
  std::int64_t begin = 0;
  std::int64_t data_begin = 0;
  std::int64_t size_bytes = 0;  // of the elements
  bool is_archive = false;
  dtype type = dtype::undefined;
  extents sizes;
  bool wants_crc32 = false;  // of the elements; archives always have one
};

/// Models item_sink. An item's slot is its index here. Different threads may write different items at the same time.
class item_writer {
 public:
  /// `source` is the source of the elements. If its bytes may change during the save, each piece is copied first, and
  /// the checksum and the file both use the copy.
  item_writer(staged_output& output, std::vector<written_item> items, const element_source& source);
  /// Writes `bytes` at `first_byte` of the item's elements; pieces must come front to back. The last byte completes the
  /// item, including its tail.
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes);
  /// Writes the heads and tails of items without elements, for which `write` is never called. Call once.
  result<void> write_empty_items();
  /// Checks that every item got all of its bytes.
  /// \errors errc::io when one did not: a bug of ours, and the output must not be committed
  result<void> check_complete() const;

  const std::vector<written_item>& items() const { return items_; }
  /// Returns the checksum of item i, from `begin` to its end. The item must be complete.
  digest128 digest(std::size_t i) const { return progress_[i].digest; }
  /// Returns the CRC-32 of item i's elements, if requested. The item must be complete.
  std::uint32_t crc32(std::size_t i) const { return progress_[i].crc32; }
  /// Returns the end of item i in its file.
  std::int64_t end(std::size_t i) const { return progress_[i].end; }

 private:
  struct running {
    xxh3_stream sum;
    stable_piece piece;
    std::optional<tensor_archive> archive;
    std::vector<std::byte> pending;  // the bytes so far of a small archive, to be written in one call
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
  // Writes the bytes, or, for a small archive, keeps them until its tail. Bytes come front to back.
  result<void> write_or_keep(std::size_t i, std::int64_t offset, std::span<const std::byte> bytes);
  staged_output& output_;
  bool copies_;
  std::vector<written_item> items_;
  std::vector<progress> progress_;
};

}  // namespace shardmesh::torch_file
