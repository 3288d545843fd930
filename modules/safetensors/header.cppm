// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: which tensor lies at which bytes. Not here: writing (safetensors_writer), folders
// of several files (hf), moving the bytes.
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
  std::vector<std::pair<std::string, std::string>> metadata;  // of __metadata__, in order
  std::int64_t data_begin = 0;                                // absolute; also the length of what was parsed
};

/// Reads and checks a header. Shapes of F4 are given as PyTorch's float4_e2m1fn_x2 with half the last size; when that
/// is odd, as float4_e2m1fn.
/// \errors errc::bad_format (header longer than the cap or the file, not UTF-8 JSON that begins with "{" after white
///         space, wrong types, unknown fields nested deeper than 127 levels, offsets that leave a hole, overlap or do
///         not fit the shape, file longer or shorter than its tensors), errc::duplicate_key, errc::overflow (also of
///         sizes before one that is 0), errc::rank_too_large, errc::unsupported (an unknown dtype, named), errc::io;
///         each names the file, and the key where there is one.
/// Cost: O(header · log entries); reads the header only. Source: safetensors/src/tensor.rs.
result<header> parse_header(const byte_source& source);

/// The value of a metadata key, or nothing.
std::optional<std::string_view> find_metadata(const safetensors::header& header, std::string_view key);

/// safetensors' spelling, "BF16"; empty for dtypes it cannot hold.
std::string_view dtype_name(dtype type);
/// The dtype with that spelling (F4 is float4_e2m1fn here).
std::optional<dtype> parse_dtype_name(std::string_view text);
/// False for complex32, complex128, bits and the types that only PyTorch or only others have.
bool can_hold(dtype type);

}  // namespace shardmesh::safetensors
