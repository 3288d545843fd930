// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/dtype.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
module shardmesh.core;

namespace shardmesh {
namespace {

// `digits` is the number of significand (or value) bits, `exponents` of exponent bits: what `widens` compares.
struct dtype_info {
  dtype type;
  std::string_view name;
  int bits;
  dtype_kind kind;
  int digits, exponents;
  bool is_signed;
};

constexpr auto table = std::to_array<dtype_info>({
    {dtype::undefined, "undefined", 0, dtype_kind::bits, 0, 0, false},
    {dtype::boolean, "bool", 8, dtype_kind::boolean, 1, 0, false},
    {dtype::uint8, "uint8", 8, dtype_kind::integer, 8, 0, false},
    {dtype::int8, "int8", 8, dtype_kind::integer, 7, 0, true},
    {dtype::int16, "int16", 16, dtype_kind::integer, 15, 0, true},
    {dtype::int32, "int32", 32, dtype_kind::integer, 31, 0, true},
    {dtype::int64, "int64", 64, dtype_kind::integer, 63, 0, true},
    {dtype::uint16, "uint16", 16, dtype_kind::integer, 16, 0, false},
    {dtype::uint32, "uint32", 32, dtype_kind::integer, 32, 0, false},
    {dtype::uint64, "uint64", 64, dtype_kind::integer, 64, 0, false},
    {dtype::float16, "float16", 16, dtype_kind::floating, 11, 5, true},
    {dtype::bfloat16, "bfloat16", 16, dtype_kind::floating, 8, 8, true},
    {dtype::float32, "float32", 32, dtype_kind::floating, 24, 8, true},
    {dtype::float64, "float64", 64, dtype_kind::floating, 53, 11, true},
    {dtype::complex32, "complex32", 32, dtype_kind::complex, 11, 5, true},
    {dtype::complex64, "complex64", 64, dtype_kind::complex, 24, 8, true},
    {dtype::complex128, "complex128", 128, dtype_kind::complex, 53, 11, true},
    {dtype::float8_e4m3fn, "float8_e4m3fn", 8, dtype_kind::floating, 4, 4, true},
    {dtype::float8_e5m2, "float8_e5m2", 8, dtype_kind::floating, 3, 5, true},
    {dtype::float8_e4m3fnuz, "float8_e4m3fnuz", 8, dtype_kind::floating, 4, 5, true},
    {dtype::float8_e5m2fnuz, "float8_e5m2fnuz", 8, dtype_kind::floating, 3, 6, true},
    {dtype::float8_e8m0fnu, "float8_e8m0fnu", 8, dtype_kind::floating, 1, 8, false},
    {dtype::float8_e4m3, "float8_e4m3", 8, dtype_kind::floating, 4, 4, true},
    {dtype::float4_e2m1fn_x2, "float4_e2m1fn_x2", 8, dtype_kind::bits, 0, 0, true},
    {dtype::float4_e2m1fn, "float4_e2m1fn", 4, dtype_kind::bits, 0, 0, true},
    {dtype::float6_e2m3, "float6_e2m3", 6, dtype_kind::bits, 0, 0, true},
    {dtype::float6_e3m2, "float6_e3m2", 6, dtype_kind::bits, 0, 0, true},
    {dtype::bits8, "bits8", 8, dtype_kind::bits, 0, 0, false},
    {dtype::bits16, "bits16", 16, dtype_kind::bits, 0, 0, false},
    {dtype::bits1x8, "bits1x8", 8, dtype_kind::bits, 0, 0, false},
    {dtype::bits2x4, "bits2x4", 8, dtype_kind::bits, 0, 0, false},
    {dtype::bits4x2, "bits4x2", 8, dtype_kind::bits, 0, 0, false},
});

struct alias {
  std::string_view name;
  dtype type;
};
constexpr auto aliases = std::to_array<alias>({
    {"half", dtype::float16},
    {"float", dtype::float32},
    {"double", dtype::float64},
    {"long", dtype::int64},
    {"int", dtype::int32},
    {"short", dtype::int16},
    {"chalf", dtype::complex32},
    {"cfloat", dtype::complex64},
    {"cdouble", dtype::complex128},
    {"boolean", dtype::boolean},
});

constexpr auto enumerators = [] {
  std::array<dtype, table.size() - 1> all{};
  for (std::size_t i = 1; i < table.size(); ++i) all[i - 1] = table[i].type;
  return all;
}();

const dtype_info& info(dtype type) {
  return table[static_cast<std::size_t>(type)];
}

}  // namespace

std::string_view name(dtype type) {
  return info(type).name;
}

std::string to_string(dtype type) {
  return std::string(name(type));
}

std::optional<dtype> parse_dtype(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  for (const dtype type : enumerators)
    if (info(type).name == text) return type;
  for (const alias& a : aliases)
    if (a.name == text) return a.type;
  return std::nullopt;
}

int bits(dtype type) {
  return info(type).bits;
}
std::int64_t item_bytes(dtype type) {
  return info(type).bits / 8;
}
dtype_kind kind(dtype type) {
  return info(type).kind;
}
bool is_floating(dtype type) {
  return kind(type) == dtype_kind::floating;
}

bool widens(dtype from, dtype to) {
  if (from == to) return true;
  const dtype_info& a = info(from);
  const dtype_info& b = info(to);
  if (a.kind == dtype_kind::bits || b.kind == dtype_kind::bits || b.kind == dtype_kind::boolean) return false;
  // No zero in the one, neither -0 nor infinity in the other two, whose range is smaller than their exponents say.
  if (to == dtype::float8_e8m0fnu) return false;
  if (a.kind == dtype_kind::boolean) return true;
  if ((to == dtype::float8_e4m3fnuz || to == dtype::float8_e5m2fnuz) && a.kind != dtype_kind::integer) return false;
  if (a.is_signed && !b.is_signed) return false;
  if (a.digits > b.digits) return false;
  if (a.kind == dtype_kind::integer) return b.kind == dtype_kind::integer || b.exponents >= 5;
  if (b.kind == dtype_kind::integer) return false;
  return a.exponents <= b.exponents && !(a.kind == dtype_kind::complex && b.kind == dtype_kind::floating);
}

std::optional<std::int64_t> size_bytes(dtype type, std::int64_t numel) {
  const auto total_bits = checked_multiply(numel, bits(type));
  if (bits(type) % 8 == 0) return checked_multiply(numel, bits(type) / 8);
  if (!total_bits || *total_bits % 8 != 0) return std::nullopt;
  return *total_bits / 8;
}

std::span<const dtype> all_dtypes() {
  return enumerators;
}

}  // namespace shardmesh
