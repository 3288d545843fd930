// SPDX-License-Identifier: Apache-2.0
// Not exported: the float32 values of quantized blocks. Each function reads `count` consecutive blocks, and writes the
// elements of each in the order of its row. The bits equal those of the Python package gguf, except in NaNs.
// Source: ggml-quants.c of ggml, and quants.py of the Python package gguf
module shardmesh.gguf:block_decoding;

import shardmesh.std;
import :tensor_type;

namespace shardmesh::gguf {

using block_decoder = void (*)(const std::uint8_t* blocks, std::int64_t count, float* to);

// Returns the function for a type; null when its blocks cannot be decoded.
block_decoder decoder_of(tensor_type type);

// Blocks of 32 elements with a scale; those of Q4_1 and Q5_1 also have a minimum.
void decode_q4_0(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q4_1(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q5_0(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q5_1(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q8_0(const std::uint8_t* blocks, std::int64_t count, float* to);

// Blocks of 256 elements in groups. Each group has a scale, which is quantized itself.
void decode_q2_k(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q3_k(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q4_k(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q5_k(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_q6_k(const std::uint8_t* blocks, std::int64_t count, float* to);

// Blocks of ternary values (-1, 0, and 1), and of 4-bit codes for values in a table.
void decode_tq1_0(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_tq2_0(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_iq4_nl(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_iq4_xs(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_mxfp4(const std::uint8_t* blocks, std::int64_t count, float* to);
void decode_nvfp4(const std::uint8_t* blocks, std::int64_t count, float* to);

}  // namespace shardmesh::gguf
