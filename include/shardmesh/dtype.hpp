// SPDX-License-Identifier: Apache-2.0
// `dtype`: the element types of PyTorch and safetensors. Functions of `shardmesh.core` give their names and sizes.
#pragma once
#include <cstdint>

namespace shardmesh {

/// The element type of a tensor. Enumerators are PyTorch's dtype names where PyTorch has one. `float4_e2m1fn_x2` is one
/// byte that holds two values, as in PyTorch; `float4_e2m1fn` and `float6_*` are safetensors' sub-byte types (4 and 6
/// bits per element).
enum class dtype : std::uint8_t {
  undefined,
  boolean,
  uint8,
  int8,
  int16,
  int32,
  int64,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  complex32,
  complex64,
  complex128,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  float8_e4m3,
  float4_e2m1fn_x2,
  float4_e2m1fn,
  float6_e2m3,
  float6_e3m2,
  bits8,
  bits16,
  bits1x8,
  bits2x4,
  bits4x2,
};

}  // namespace shardmesh
