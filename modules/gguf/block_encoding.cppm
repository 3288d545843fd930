// SPDX-License-Identifier: Apache-2.0
// Not exported: quantizes float32 values to blocks. Each function writes one block of 32 values. The bits equal those
// of the Python package gguf for every block of finite values, except where all are almost zero, or zeros have signs.
// Source: the functions quantize_row_*_ref of ggml, and quants.py of the Python package gguf
module shardmesh.gguf:block_encoding;

import shardmesh.std;
import :tensor_type;

namespace shardmesh::gguf {

// Returns false, with an unspecified block, when a value or the scale is not finite in the block.
using block_encoder = bool (*)(const float* values, std::uint8_t* block);

// Returns the function for a type; null when it is not written. K blocks are not: ggml searches their scales with sums
// whose order the published definition leaves open.
block_encoder encoder_of(tensor_type type);

}  // namespace shardmesh::gguf
