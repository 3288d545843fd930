// SPDX-License-Identifier: Apache-2.0
// Not exported: describes the chunks of a tensor to be written in the metadata. It prefers a mesh whose placements give
// the same cut, so that the package's DefaultResharder finds the chunks; otherwise it lists their boxes.
module shardmesh.torch_checkpointing:chunk_sharding;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :metadata;

namespace shardmesh::torch_checkpointing {

struct rank_box {
  std::int32_t rank = 0;
  box where;
};

struct chunk_sharding {
  std::vector<sharding> groups;
  std::vector<rank_box> parts;  // one for each rank that holds chunks; ascending
  bool is_gathered = false;     // a rank's chunks are not one box: the lowest rank holds the whole
};

// Describes `chunks`, which tile the tensor. A rank's chunks that form one box become that box.
// \errors those of `layout::make`
// Cost: O(chunks log chunks).
result<chunk_sharding> sharding_of_chunks(const extents& shape, dtype type, std::span<const output_chunk> chunks);

}  // namespace shardmesh::torch_checkpointing
