// SPDX-License-Identifier: Apache-2.0
// Not exported: the elements of one tensor of the new checkpoint, made of the base's elements and the blocks of a
// delta.
module shardmesh.delta:delta_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :description;

namespace shardmesh::delta {

// Blocks that were read in part, and the memory of decoders. The sources of one reader share it. Thread-safe.
class block_memory {
 public:
  explicit block_memory(std::int64_t block_bytes);
  ~block_memory();

 private:
  friend class delta_source;
  struct state;
  std::unique_ptr<state> state_;
};

// The objects that a source reads. They must outlive it.
struct delta_input {
  checkpoint_reader* base = nullptr;
  chunk_source* base_chunks = nullptr;
  const description* described = nullptr;
  std::shared_ptr<const byte_source> file;
  block_memory* memory = nullptr;
};

// Makes a source that shows the tensor with this index in the description. `base` is its counterpart in the base's
// catalog; null if it has none.
std::shared_ptr<const byte_source> make_delta_source(const delta_input& input, std::size_t tensor,
                                                     const tensor_entry* base);

}  // namespace shardmesh::delta
