// SPDX-License-Identifier: Apache-2.0
// Reads the header of a safetensors file: the bytes of each tensor. Writing is in writer, folders of several files
// are in hf.
export module shardmesh.safetensors:header;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::safetensors {

/// The longest JSON header that readers accept, in bytes. Source: safetensors MAX_HEADER_SIZE.
inline constexpr std::int64_t max_header_bytes = 100'000'000;

/// One tensor: row-major, little-endian bytes [begin, end) of the file (absolute offsets).
struct entry {
  std::string name;
  dtype type = dtype::undefined;
  extents shape;
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const entry&, const entry&) = default;
};

/// A header that passed every check of the format: the entries tile [data_begin, end of file).
struct header {
  std::vector<entry> entries;                                 // by position in the file
  std::vector<std::pair<std::string, std::string>> metadata;  // from __metadata__, in order
  std::int64_t data_begin = 0;                                // absolute; also the length of the parsed bytes
};

/// Reads and checks a header. An F4 tensor becomes PyTorch's float4_e2m1fn_x2 with half the last size; when that size
/// is odd, it becomes float4_e2m1fn.
/// \errors errc::bad_format (header longer than the cap or the file, not UTF-8 JSON that begins with "{" after white
///         space, wrong types, unknown fields nested deeper than 127 levels, offsets that leave a hole, overlap, or do
///         not fit the shape, file longer or shorter than its tensors), errc::duplicate_key, errc::overflow (also of
///         sizes before a size of 0), errc::rank_too_large, errc::unsupported (an unknown dtype, named), errc::io;
///         each names the file, and the key where there is one.
/// Cost: O(header · log entries); reads the header only. Source: safetensors/src/tensor.rs.
result<header> parse_header(const byte_source& source);

/// Returns the value of a metadata key, or nothing.
std::optional<std::string_view> find_metadata(const safetensors::header& header, std::string_view key);

/// Returns safetensors' name of a dtype, such as "BF16"; empty for dtypes that it cannot hold.
std::string_view dtype_name(dtype type);
/// Returns false for complex32, complex128, bits, and the types that only PyTorch or only other formats have.
bool can_hold(dtype type);

}  // namespace shardmesh::safetensors
