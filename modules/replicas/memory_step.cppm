// SPDX-License-Identifier: Apache-2.0
// Not exported: the memory of one step on one rank. It belongs to no communicator, so it outlives the ranks that sent
// it.
module shardmesh.replicas:memory_step;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :kept_catalog;

namespace shardmesh {

// The place of one chunk in this rank's memory.
struct chunk_copy {
  std::size_t chunk = 0;  // its number in the catalog
  std::size_t offset = 0, size_bytes = 0;
};

// A step, or this rank's part of it. Move-only; moves do not throw.
struct memory_step {
  std::shared_ptr<const kept_catalog> catalog;
  std::vector<std::byte> encoded;  // the catalog
  digest128 id;                    // of `encoded`: equal ids mean equal steps
  host_tensor memory;              // uint8
  std::vector<chunk_copy> copies;  // ascending by chunk

  std::span<std::byte> bytes_of(const chunk_copy& copy) { return memory.bytes().subspan(copy.offset, copy.size_bytes); }
  std::span<const std::byte> bytes_of(const chunk_copy& copy) const {
    return memory.bytes().subspan(copy.offset, copy.size_bytes);
  }
};

// The elements' bytes of several steps.
std::int64_t bytes_in(std::span<const memory_step> steps);

// The number and the bytes of one chunk that a rank is to keep.
struct chunk_to_keep {
  std::size_t chunk = 0;
  std::int64_t size_bytes = 0;
};

// Allocates memory for chunks. `held_bytes` is the memory of steps that stay meanwhile, and `most_bytes` the bound of
// both. \errors errc::no_memory naming the sizes, errc::overflow
result<memory_step> allocate_step(std::span<const chunk_to_keep> chunks, std::int64_t held_bytes,
                                  std::int64_t most_bytes);

}  // namespace shardmesh
