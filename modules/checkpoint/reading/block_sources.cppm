// SPDX-License-Identifier: Apache-2.0
// Not exported: the bytes of dequantized chunks, computed when they are read. Not here: which tensors are quantized
// (dequantized).
module shardmesh.checkpoint:block_sources;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import shardmesh.catalog;

namespace shardmesh {

// A stored tensor whose boxes are read whatever its chunks are. Everything that it names outlives it.
struct stored_boxes {
  checkpoint_reader* reader = nullptr;
  chunk_source* source = nullptr;
  const tensor_entry* tensor = nullptr;

  // Fills `to` with a box of the whole tensor.
  result<void> read(const box& part, const tensor_view& to) const;
};

// One chunk of a quantized tensor: its number, and its box of the stored tensor.
struct quantized_chunk {
  stored_boxes of;
  std::int32_t number = 0;
  box where;
  std::string file;  // for messages
};

// A chunk of an FP8 weight as row-major float32.
std::shared_ptr<const byte_source> make_fp8_source(quantized_chunk weight, stored_boxes scales, std::int64_t block);

// A chunk of MXFP4 blocks as row-major float32; the chunk has whole groups.
std::shared_ptr<const byte_source> make_mxfp4_source(quantized_chunk blocks, stored_boxes scales);

}  // namespace shardmesh
