// SPDX-License-Identifier: Apache-2.0
// Not exported: byte sources that dequantize a chunk while it is read. The choice of tensors is in dequantized.
module shardmesh.checkpoint:quantized_sources;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.storage;
import shardmesh.checkpoint_core;

namespace shardmesh {

// One chunk of a quantized tensor: its number, and its box in the stored tensor.
struct quantized_chunk {
  stored_boxes of;
  std::int32_t number = 0;
  box where;
  std::string file;  // for messages
};

// Makes a source that shows a chunk of an FP8 weight as row-major float32.
std::shared_ptr<const byte_source> make_fp8_source(quantized_chunk weight, stored_boxes scales, std::int64_t block);

// Makes a source that shows a chunk of MXFP4 blocks as row-major float32. The chunk must consist of whole groups.
std::shared_ptr<const byte_source> make_mxfp4_source(quantized_chunk blocks, stored_boxes scales);

}  // namespace shardmesh
