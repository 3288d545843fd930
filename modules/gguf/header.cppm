// SPDX-License-Identifier: Apache-2.0
// Reads the description of a GGUF file: the places of its metadata values, and the place of each tensor. Values are
// decoded in metadata_value, tensors are read in reader.
export module shardmesh.gguf:header;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

export namespace shardmesh::gguf {

/// The type of a metadata value, with its number in files.
enum class value_type : std::uint32_t {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  float32,
  boolean,
  string,
  array,
  uint64,
  int64,
  float64
};

/// One metadata value. It stays in the file until it is read: a tokenizer's vocabulary is large.
struct metadata_entry {
  std::string key;
  value_type type = value_type::uint8;
  std::int64_t begin = 0, end = 0;          // absolute offsets; an array begins with its type and count
  value_type elements = value_type::uint8;  // of an array
  std::int64_t count = 0;                   // of an array
  friend bool operator==(const metadata_entry&, const metadata_entry&) = default;
};

/// One tensor: its bytes [begin, end) of the file (absolute offsets).
struct tensor_info {
  std::string name;
  std::uint32_t type = 0;  // may be a number that no known type has; `end` equals `begin` then
  extents shape;           // row-major, so in the reverse order of the file
  std::int64_t begin = 0, end = 0;
  friend bool operator==(const tensor_info&, const tensor_info&) = default;
};

/// A description that passed every check of the format: tensors of known types lie inside the file, aligned, and do not
/// overlap.
struct header {
  std::uint32_t version = 0;
  std::vector<metadata_entry> metadata;  // in the order of the file; so are the tensors
  std::vector<tensor_info> tensors;
  std::int64_t alignment = 32;
  std::int64_t data_begin = 0;  // absolute
};

inline constexpr std::string_view architecture_key = "general.architecture";
inline constexpr std::string_view alignment_key = "general.alignment";
inline constexpr std::int64_t default_alignment = 32;

/// The longest key of a metadata value, in bytes. Source: the specification of GGUF
inline constexpr std::int64_t max_key_bytes = 65535;

/// Returns whether an alignment is valid: a power of two from 8 to 2^31.
constexpr bool is_alignment(std::uint64_t value) {
  return value >= 8 && value <= (std::uint64_t{1} << 31) && (value & (value - 1)) == 0;
}

/// Reads and checks the description of a file of version 2 or 3. Tensors of unknown types are listed.
/// \errors errc::bad_format (not GGUF, truncated, counts beyond the file's size, unknown types of values, arrays nested
///         too deep, an invalid alignment, offsets that are not aligned or leave the file, rows that are not whole
///         blocks, overlapping tensors), errc::duplicate_key, errc::overflow, errc::rank_too_large,
///         errc::unsupported (big-endian files and other versions), the limits of `budget`, errc::io; each names the
///         file, and the key where there is one
/// Cost: O(description · log tensors); reads no tensor.
/// Source: gguf.cpp of ggml, and gguf_reader.py of the Python package gguf
result<header> parse_header(const byte_source& source, read_budget& budget);

/// Returns the metadata value with this key; null when there is none.
const metadata_entry* find_metadata(const gguf::header& header, std::string_view key);

/// Returns true when the file begins as a GGUF file does.
result<bool> looks_like_gguf(const std::filesystem::path& file);

}  // namespace shardmesh::gguf
