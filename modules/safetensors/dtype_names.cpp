// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <optional>
#include <string_view>
module shardmesh.safetensors;

import :dtype_names;

namespace shardmesh::safetensors {
namespace {

struct spelling {
  std::string_view name;
  dtype type;
};
// The names of dtypes, in the order of safetensors' Dtype enum, which its writer uses: smallest alignment first.
constexpr auto spellings = std::to_array<spelling>({
    {"BOOL", dtype::boolean},
    {"F4", dtype::float4_e2m1fn},
    {"F6_E2M3", dtype::float6_e2m3},
    {"F6_E3M2", dtype::float6_e3m2},
    {"U8", dtype::uint8},
    {"I8", dtype::int8},
    {"F8_E5M2", dtype::float8_e5m2},
    {"F8_E4M3", dtype::float8_e4m3fn},
    {"F8_E8M0", dtype::float8_e8m0fnu},
    {"F8_E4M3FNUZ", dtype::float8_e4m3fnuz},
    {"F8_E5M2FNUZ", dtype::float8_e5m2fnuz},
    {"I16", dtype::int16},
    {"U16", dtype::uint16},
    {"F16", dtype::float16},
    {"BF16", dtype::bfloat16},
    {"I32", dtype::int32},
    {"U32", dtype::uint32},
    {"F32", dtype::float32},
    {"C64", dtype::complex64},
    {"F64", dtype::float64},
    {"I64", dtype::int64},
    {"U64", dtype::uint64},
});

}  // namespace

std::optional<dtype> parse_dtype_name(std::string_view text) {
  for (const spelling& s : spellings)
    if (s.name == text) return s.type;
  return std::nullopt;
}

std::string_view dtype_name(dtype type) {
  if (type == dtype::float4_e2m1fn_x2) return "F4";
  for (const spelling& s : spellings)
    if (s.type == type) return s.name;
  return {};
}

bool can_hold(dtype type) {
  return !dtype_name(type).empty();
}

}  // namespace shardmesh::safetensors
