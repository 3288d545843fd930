// SPDX-License-Identifier: Apache-2.0
// Names, sizes and kinds of element types. Not here: conversions (room kernels) and file spellings (room checkpoint).
export module shardmesh.core:dtype;

import shardmesh.std;
import :extents;

export namespace shardmesh {

enum class dtype_kind : std::uint8_t { boolean, integer, floating, complex, bits };

/// PyTorch's name, "float32"; "float4_e2m1fn", "float6_e2m3" for types PyTorch lacks; "undefined".
std::string_view name(dtype type);
std::string to_string(dtype type);
/// The dtype with that name; accepts PyTorch's aliases (half, float, double, long, int, short, bool, cfloat ...).
std::optional<dtype> parse_dtype(std::string_view text);
/// Bits an element takes: 4, 6 or a multiple of 8; 0 for undefined.
int bits(dtype type);
/// Bytes an element takes. Precondition: not a sub-byte type.
std::int64_t item_bytes(dtype type);
dtype_kind kind(dtype type);
/// float64 to the float4 and float6 types: real numbers with a fraction. Complex dtypes are not.
bool is_floating(dtype type);
/// Every value of `from` is one of `to`. bool widens to anything, integers to floats that hold them exactly.
bool widens(dtype from, dtype to);
/// Bytes of `numel` elements, or nothing when that overflows or is not a whole number of bytes.
std::optional<std::int64_t> size_bytes(dtype type, std::int64_t numel);
/// The dtype of a C++ type: `dtype_of<float>` is dtype::float32. `undefined` where there is none.
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
/// Every dtype but `undefined`.
std::span<const dtype> all_dtypes();

}  // namespace shardmesh
