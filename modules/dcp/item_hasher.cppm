// SPDX-License-Identifier: Apache-2.0
// Not exported: computes the checksums that items would have, without writing them. `previous` compares them with the
// record of an earlier checkpoint.
module shardmesh.dcp:item_hasher;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.transfer;
import shardmesh.torch_file;

namespace shardmesh::dcp {

// Models item_sink. An item's slot is its index here. Different threads may hash different items at the same time. The
// pieces are not copied: if a program changes the memory meanwhile, the checksum is that of no item, and equals none.
class item_hasher {
 public:
  // Adds an item of these elements, of which there is at least one. Returns its slot.
  std::int32_t add(dtype type, const extents& sizes);
  // Hashes the item's elements; pieces must come front to back. The last byte completes the item.
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes);
  // Returns the checksum of the item's whole archive; nothing when the item is incomplete.
  const std::optional<digest128>& digest(std::size_t i) const { return items_[i].digest; }

 private:
  struct running {
    explicit running(torch_file::tensor_archive made) : archive(std::move(made)) {}
    torch_file::tensor_archive archive;
    xxh3_stream sum;
    std::uint32_t crc32 = 0;
    std::int64_t hashed = 0;
  };
  struct hashed_item {
    dtype type = dtype::undefined;
    extents sizes;
    std::unique_ptr<running> work;  // while the item is being hashed
    std::optional<digest128> digest;
  };
  std::vector<hashed_item> items_;
};

}  // namespace shardmesh::dcp
