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
  std::array<dtype, detail::dtype_table.size() - 1> all{};
  for (std::size_t i = 1; i <= all.size(); ++i) all[i - 1] = detail::dtype_table[i].type;
  return all;
}();

}  // namespace

std::string to_string(dtype type) {
  return std::string(name(type));
}

std::optional<dtype> parse_dtype(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  for (const dtype type : enumerators)
    if (name(type) == text) return type;
  for (const alias& a : aliases)
    if (a.name == text) return a.type;
  return std::nullopt;
}

bool widens(dtype from, dtype to) {
  if (from == to) return true;
  const detail::dtype_info& a = detail::info(from);
  const detail::dtype_info& b = detail::info(to);
  if (a.kind == dtype_kind::bits || b.kind == dtype_kind::bits || b.kind == dtype_kind::boolean) return false;
  // float8_e8m0fnu has no zero. The fnuz types below have neither -0 nor infinity, and their range is smaller than
  // their exponent bits suggest.
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
