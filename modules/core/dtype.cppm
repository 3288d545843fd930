// SPDX-License-Identifier: Apache-2.0
// Names, sizes, and kinds of element types. Conversions are in room kernels; each format's room has its own names of
// dtypes.
export module shardmesh.core:dtype;

import shardmesh.std;
import :extents;

export namespace shardmesh {

/// The kind of a dtype's elements, as far as casts and reductions distinguish them; see `kind`.
enum class dtype_kind : std::uint8_t {
  boolean,
  integer,   // signed or unsigned
  floating,  // real numbers with a fraction: float64 to the float8 types
  complex,
  bits  // the bits, float4, and float6 types, and `undefined`
};

}  // namespace shardmesh

namespace shardmesh::detail {

// `widens` compares `digits` (the number of significand or value bits) and `exponents` (the number of exponent bits).
struct dtype_info {
  dtype type;
  std::string_view name;
  int bits;
  dtype_kind kind;
  int digits, exponents;
  bool is_signed;
};

inline constexpr auto dtype_table = std::to_array<dtype_info>({
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

constexpr const dtype_info& info(dtype type) {
  return dtype_table[static_cast<std::size_t>(type)];
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// PyTorch's name, such as "float32". Types that PyTorch lacks are "float4_e2m1fn", "float6_e2m3", and so on;
/// `undefined` is "undefined".
constexpr std::string_view name(dtype type) {
  return detail::info(type).name;
}
std::string to_string(dtype type);
/// Returns the dtype of that name, with or without "torch." in front. Accepts PyTorch's aliases (half, float, double,
/// long, int, short, boolean, cfloat, ...).
std::optional<dtype> parse_dtype(std::string_view text);
/// Bits per element: 4, 6, or a multiple of 8; 0 for `undefined`.
constexpr int bits(dtype type) {
  return detail::info(type).bits;
}
/// Bytes per element. Precondition: not a sub-byte type.
constexpr std::int64_t item_bytes(dtype type) {
  return bits(type) / 8;
}
constexpr dtype_kind kind(dtype type) {
  return detail::info(type).kind;
}
/// True for float64 down to the float8 types, which are real numbers with a fraction. False for complex, float4, and
/// float6 types.
constexpr bool is_floating(dtype type) {
  return kind(type) == dtype_kind::floating;
}
/// Returns whether `to` represents every value of `from`. `boolean` widens to all numeric types but float8_e8m0fnu, and
/// integers widen to floating types that hold them exactly.
bool widens(dtype from, dtype to);
/// Returns the bytes of `numel` elements, or nothing when that overflows or is not a whole number of bytes.
std::optional<std::int64_t> size_bytes(dtype type, std::int64_t numel);
/// The dtype of a C++ type: `dtype_of<float>` is `dtype::float32`. `undefined` for a type without one.
template <class T>
inline constexpr dtype dtype_of = dtype::undefined;
template <>
inline constexpr dtype dtype_of<bool> = dtype::boolean;
template <>
inline constexpr dtype dtype_of<std::int8_t> = dtype::int8;
template <>
inline constexpr dtype dtype_of<std::int16_t> = dtype::int16;
template <>
inline constexpr dtype dtype_of<std::int32_t> = dtype::int32;
template <>
inline constexpr dtype dtype_of<std::int64_t> = dtype::int64;
template <>
inline constexpr dtype dtype_of<std::uint8_t> = dtype::uint8;
template <>
inline constexpr dtype dtype_of<std::uint16_t> = dtype::uint16;
template <>
inline constexpr dtype dtype_of<std::uint32_t> = dtype::uint32;
template <>
inline constexpr dtype dtype_of<std::uint64_t> = dtype::uint64;
template <>
inline constexpr dtype dtype_of<float> = dtype::float32;
template <>
inline constexpr dtype dtype_of<double> = dtype::float64;
/// A C++ type whose objects are elements of a dtype.
template <class T>
concept native_element = dtype_of<T> != dtype::undefined;
/// Every dtype except `undefined`.
std::span<const dtype> all_dtypes();

}  // namespace shardmesh
