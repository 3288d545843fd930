// SPDX-License-Identifier: Apache-2.0
// Not exported: turns the elements of a block into the stored bytes of a delta, and back. It neither reads files nor
// compares digests of the elements that it decodes.
module shardmesh.delta:block_codec;

import shardmesh.std;
import shardmesh.core;
import :block_entry;
import :zstd_frame;

namespace shardmesh::delta {

// Returns whether blocks can hold elements of this dtype: those of 1, 2, 4, 8, or 16 bytes.
bool has_block_elements(dtype type);

// Returns the largest `plain_bytes` that a block of `bytes` may have; the number is exact for `dense` and `whole`.
std::int64_t most_plain_bytes(block_coding coding, std::int64_t bytes);

// A block's description, without its place, and its stored bytes.
struct encoded_block {
  block_entry entry;
  std::vector<std::byte> stored;
};

// Encodes blocks, with memory that the next call reuses. Not thread-safe.
class block_encoder {
 public:
  explicit block_encoder(int level) : compressor_(level) {}
  // `base`: the base's elements, as many as in `next`; empty if there are none. `item`: bytes of an element.
  // Of two equal inputs, the outcome is equal on every machine that has the same version of zstd.
  encoded_block encode(std::span<const std::byte> base, std::span<const std::byte> next, std::int64_t item);

 private:
  std::span<const std::byte> plain_of(std::span<const std::byte> base, std::span<const std::byte> next,
                                      std::int64_t item, block_coding& coding);

  frame_compressor compressor_;
  std::vector<std::byte> gaps_, values_, plain_;
};

// Decodes blocks, with memory that the next call reuses. Not thread-safe.
class block_decoder {
 public:
  // Turns `bytes`, the base's elements, into the new ones. For `whole`, their old content does not matter.
  // \pre `entry.plain_bytes` is at most `most_plain_bytes`
  // \errors errc::bad_format
  result<void> decode(const block_entry& entry, std::span<const std::byte> stored, std::int64_t item,
                      std::span<std::byte> bytes);

 private:
  frame_decompressor decompressor_;
  std::vector<std::byte> plain_;  // only grows
};

}  // namespace shardmesh::delta
