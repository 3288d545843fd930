// SPDX-License-Identifier: Apache-2.0
// Not exported: the list of everything that a kept step consists of, the same on every rank. The bytes are in
// memory_step, and the ranks that hold them in memory_survey.
module shardmesh.replicas:kept_catalog;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;

namespace shardmesh {

// One box of a tensor, and the XXH3-128 of its bytes in row-major order.
struct kept_chunk {
  box where;
  std::int64_t size_bytes = 0;
  digest128 digest;
};

// A tensor, or an object as the bytes of its archive.
struct kept_tensor {
  std::string key;
  bool is_object = false;
  extents shape;
  dtype type = dtype::undefined;
  std::vector<kept_chunk> chunks;  // disjoint and ascending; together the whole tensor
};

// The chunks of all tensors, in order, are numbered from 0.
struct kept_catalog {
  std::int64_t step = 0;
  std::int64_t number = 0;  // higher for a step that was kept later, also if training went back
  std::vector<kept_tensor> tensors;
};

// A chunk, with the tensor that it belongs to.
struct numbered_chunk {
  const kept_tensor* tensor = nullptr;
  const kept_chunk* chunk = nullptr;
};

// Returns all chunks by their numbers. Valid while the catalog lives.
std::vector<numbered_chunk> chunks_of(const kept_catalog& catalog);

std::vector<std::byte> encode(const kept_catalog& catalog);
// Returns nothing for bytes that are not a catalog. Allocates no more than the bytes hold.
std::optional<kept_catalog> decode_catalog(std::span<const std::byte> bytes);

}  // namespace shardmesh
