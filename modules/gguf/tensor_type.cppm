// SPDX-License-Identifier: Apache-2.0
// The types that a tensor of a GGUF file can have: plain elements, and blocks of quantized numbers. Decoding and
// encoding blocks is in block_decoding and block_encoding.
export module shardmesh.gguf:tensor_type;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::gguf {

/// The type of a tensor, with its number in files.
/// Source: ggml_type of ggml.h
enum class tensor_type : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41
};

/// The properties of a tensor type.
struct type_traits {
  tensor_type type = tensor_type::f32;
  std::string_view name;            // as llama.cpp spells it: "Q4_K"
  std::int64_t block_elements = 1;  // consecutive elements of a row that are stored together
  std::int64_t block_bytes = 0;     // 0: no file has this type, and its size is not defined
  dtype plain = dtype::undefined;   // of a type without blocks
  bool is_decoded = false;          // its blocks can be read as float32
  bool is_encoded = false;          // float32 can be written as its blocks

  bool is_plain() const { return plain != dtype::undefined; }
};

/// Returns all types, by number.
std::span<const type_traits> tensor_types();
/// Returns the type with this number in a file; null if no known type has it.
const type_traits* find_type(std::uint32_t number);
/// Returns the type with this name, in upper or lower case; null if no type has it.
const type_traits* find_type(std::string_view name);
const type_traits& traits_of(tensor_type type);
/// Returns the type whose plain elements have this dtype; null for a dtype that GGUF lacks, such as boolean.
const type_traits* type_that_holds(dtype element);

/// The most dimensions of a tensor. Source: GGML_MAX_DIMS
inline constexpr std::size_t max_dimensions = 4;

/// Returns the bytes of a tensor of this type and row-major shape.
/// \errors errc::bad_format when the rows do not consist of whole blocks; errc::overflow
result<std::int64_t> stored_bytes(const type_traits& type, const extents& shape);

}  // namespace shardmesh::gguf
