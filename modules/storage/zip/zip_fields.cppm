// SPDX-License-Identifier: Apache-2.0
// Not exported: the numbers in the headers of a ZIP archive, and the ZIP64 fields that hold those of 64 bits. The
// headers themselves are read in `zip_end`, `zip_entry`, and `local_headers`.
module shardmesh.storage:zip_fields;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh::zip_fields {

// A number that a ZIP64 record or field holds instead.
inline constexpr std::uint64_t saturated16 = 0xffff, saturated32 = 0xffffffff;

// The signatures and sizes of local headers and directory entries, without their names.
inline constexpr std::uint64_t local_signature = 0x04034b50, central_signature = 0x02014b50;
inline constexpr std::int64_t local_bytes = 30, central_bytes = 46;

// Return the little-endian number at an offset, which must lie in `bytes` with all of its bytes.
std::uint64_t u16(std::span<const std::byte> bytes, std::size_t offset);
std::uint64_t u32(std::span<const std::byte> bytes, std::size_t offset);
std::uint64_t u64(std::span<const std::byte> bytes, std::size_t offset);

// The numbers of a directory entry that its ZIP64 field may hold, in the order of that field.
struct entry_numbers {
  std::uint64_t size = 0, compressed = 0, offset = 0, disk = 0;

  bool operator==(const entry_numbers&) const = default;
};

// Replaces the saturated numbers of a directory entry by those in its extra fields. Returns nothing when the extra
// fields are cut off, or when a ZIP64 field lacks a number, contradicts the entry or another such field, or is longer
// than its numbers.
std::optional<entry_numbers> widened(const entry_numbers& entry, std::span<const std::byte> extra);

// Returns whether a local header's ZIP64 field is needed to know its sizes.
bool has_saturated_sizes(std::span<const std::byte> local_header);

// Compares the saturated sizes of a local header with those of the directory. The ZIP64 field has zeros when the sizes
// follow the data.
bool saturated_sizes_agree(std::span<const std::byte> local_header, std::span<const std::byte> extra,
                           const entry_numbers& directory);

}  // namespace shardmesh::zip_fields
