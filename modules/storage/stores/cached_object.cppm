// SPDX-License-Identifier: Apache-2.0
// Not exported: an object of a store whose blocks are kept in a folder.
module shardmesh.storage:cached_object;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :block_folder;
import :source;

namespace shardmesh {

// Thread-safe. Reads whole blocks of 1 MiB: from the folder, or else from the store, whose answer is kept. Blocks that
// a range needs whole are read straight into its memory. Others take at most 32 MiB for each call. When the folder
// keeps no further blocks, the store sends only the bytes of the ranges.
class cached_object final : public byte_source {
 public:
  // `identity` differs for every other content.
  cached_object(std::unique_ptr<byte_source> object, std::shared_ptr<block_folder> folder, const digest128& identity)
      : object_(std::move(object)), folder_(std::move(folder)), identity_(identity) {}
  std::int64_t size_bytes() const override { return object_->size_bytes(); }
  std::string name() const override { return object_->name(); }
  std::string version() const override { return object_->version(); }
  std::int64_t bytes_per_request() const override { return object_->bytes_per_request(); }
  result<void> read(std::int64_t offset, std::span<std::byte> out) const override;
  result<void> read_ranges(std::span<const source_range> ranges) const override;

 private:
  // A block, and the parts of it that the ranges of a call need.
  struct wanted_block {
    std::vector<source_range> parts;         // `offset` counts from the beginning of the block
    std::unique_ptr<std::byte[]> own_bytes;  // null: the only part is the whole block
    std::span<std::byte> bytes;
  };
  using wanted_blocks = std::map<std::int64_t, wanted_block>;  // by number

  block_key key_of(std::int64_t number) const;
  result<void> fill(wanted_blocks& wanted) const;

  std::unique_ptr<byte_source> object_;
  std::shared_ptr<block_folder> folder_;
  digest128 identity_;
};

}  // namespace shardmesh
