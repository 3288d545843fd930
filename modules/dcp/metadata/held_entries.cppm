// SPDX-License-Identifier: Apache-2.0
// Not exported: the entries that ranks have under one key, and their chunks. The merging is in `merge`.
module shardmesh.dcp:held_entries;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh::dcp {

// A rank's entry under a key: exactly one of `tensor` and `object` is set.
struct held_entry {
  std::int64_t rank = 0;
  const catalog* from = nullptr;
  const tensor_entry* tensor = nullptr;
  const object_entry* object = nullptr;

  const path& where() const { return tensor ? tensor->where : object->where; }
};
using holders = std::vector<held_entry>;

// A chunk of one holder.
struct held_chunk {
  const held_entry* holder = nullptr;
  std::int32_t number = 0;

  box where() const { return holder->from->chunk_box(*holder->tensor, number); }
  const stored_range& place() const { return holder->from->chunk_places[static_cast<std::size_t>(number)]; }
};

// Returns whether both are objects, or tensors of one shape and dtype.
bool are_described_alike(const held_entry& a, const held_entry& b);

// Returns "an object", or a tensor's dtype and shape.
std::string description_of(const held_entry& entry);

void for_each_chunk(const held_entry& entry, function_ref<void(const held_chunk&)> visit);

}  // namespace shardmesh::dcp
