// SPDX-License-Identifier: Apache-2.0
// Not exported: quantizes float32 values to blocks. Each function writes one block. The bits equal those of ggml's
// reference, and of the Python package gguf where it has the type. Blocks whose values are almost zero may differ, as
// may the signs of zeros.
// Source: the functions quantize_row_*_ref of ggml
module shardmesh.gguf:block_encoding;

import shardmesh.std;
import :tensor_type;

namespace shardmesh::gguf {

// Returns false, with an unspecified block, when a value or the scale is not finite in the block.
using block_encoder = bool (*)(const float* values, std::uint8_t* block);

// Returns the function for a type; null if shardmesh does not write its blocks.
block_encoder encoder_of(tensor_type type);

bool encode_q4_k(const float* values, std::uint8_t* block);
bool encode_q6_k(const float* values, std::uint8_t* block);

}  // namespace shardmesh::gguf
