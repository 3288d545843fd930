// SPDX-License-Identifier: Apache-2.0
// The header of a .npy array: its type, order, and shape, in both directions. It is the text of a Python dict, which is
// parsed here and never evaluated. Archives of arrays are read in reader.
export module shardmesh.npz:array_header;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh::npz {

/// The largest header that is read, in bytes. Only structured types with thousands of fields need more.
inline constexpr std::int64_t max_header_bytes = std::int64_t{1} << 20;

/// The most bytes of a type's spelling that are kept.
inline constexpr std::size_t max_descr_bytes = 256;

/// The description of one array.
struct array_header {
  std::string descr;              // NumPy's spelling of the type: "<f4"; of a structured type: the begin of its fields
  dtype type = dtype::undefined;  // undefined: shardmesh has no such dtype, and the elements are not read
  bool is_big_endian = false;     // of elements of two or more bytes
  bool is_fortran = false;        // the first index varies fastest
  extents shape;
  std::int64_t data_begin = 0;  // bytes from the array's first byte to its elements
  std::int64_t data_bytes = 0;  // of the elements; 0 for an undefined type
  std::uint32_t crc32 = 0;      // of the header: the first `data_begin` bytes
  friend bool operator==(const array_header&, const array_header&) = default;
};

/// Returns true when the bytes begin as a .npy array does.
bool begins_array(std::span<const std::byte> first);

/// Returns the number of bytes of the header, from the array's first byte to its elements.
/// \param first  the first bytes of the array: 12, or all when there are fewer
/// \errors errc::bad_format (no array, cut off, larger than `max_header_bytes`), errc::unsupported for another version
result<std::int64_t> header_bytes_of(std::span<const std::byte> first);

/// Parses a header of version 1.0, 2.0, or 3.0. Accepts what NumPy's writers produce: a dict of exactly the keys
/// "descr", "fortran_order", and "shape".
/// \param header  exactly the header's bytes
/// \errors errc::bad_format, errc::rank_too_large, errc::overflow; those of `header_bytes_of`
/// Cost: linear, without recursion.
/// Source: numpy/lib/_format_impl.py
result<array_header> parse_array_header(std::span<const std::byte> header);

/// Returns the header of a contiguous little-endian array, byte for byte as NumPy writes it (version 1.0).
/// \pre `descr_of(type)` is not empty
std::string format_array_header(dtype type, const extents& shape);

/// Returns NumPy's spelling of a dtype: "<f4". Empty for dtypes that NumPy lacks, such as bfloat16.
std::string_view descr_of(dtype type);

/// Describes a type that shardmesh does not read, for messages: "NumPy array of Python objects".
std::string kind_of(const array_header& header);

}  // namespace shardmesh::npz
