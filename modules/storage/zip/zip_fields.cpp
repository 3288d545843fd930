// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
module shardmesh.storage;

import :zip_fields;

namespace shardmesh::zip_fields {
namespace {

std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t offset, std::size_t width) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < width; ++i) number |= std::to_integer<std::uint64_t>(bytes[offset + i]) << (8 * i);
  return number;
}

// Takes the number at the beginning of a ZIP64 field. Returns nothing when the field is too short.
std::optional<std::uint64_t> take(std::span<const std::byte>& field, std::size_t width) {
  if (field.size() < width) return std::nullopt;
  const std::uint64_t number = number_at(field, 0, width);
  field = field.subspan(width);
  return number;
}

// Skips the number at the beginning of a ZIP64 field if it is this one.
void skip(std::span<const std::byte>& field, std::size_t width, std::uint64_t number) {
  if (field.size() >= width && number_at(field, 0, width) == number) field = field.subspan(width);
}

// Readers take only the numbers that are saturated in the entry. Some writers add others after these (Go the offset,
// miniz the compressed size), which must then be the entry's.
std::optional<entry_numbers> widened_by(const entry_numbers& entry, std::span<const std::byte> field) {
  entry_numbers wide = entry;
  for (std::uint64_t* const number : {&wide.size, &wide.compressed, &wide.offset}) {
    if (*number != saturated32) continue;
    const auto taken = take(field, 8);
    if (!taken) return std::nullopt;
    *number = *taken;
  }
  if (entry.disk == saturated16) {
    const auto taken = take(field, 4);
    if (!taken) return std::nullopt;
    wide.disk = *taken;
  }
  for (const std::uint64_t number : {entry.size, entry.compressed, entry.offset})
    if (number != saturated32) skip(field, 8, number);
  if (entry.disk != saturated16) skip(field, 4, entry.disk);
  if (!field.empty()) return std::nullopt;
  return wide;
}

// Calls `accept` with each ZIP64 field. Returns false when a call does, or when an extra field is cut off.
template <class Accept>
bool accepts_all(std::span<const std::byte> extra, Accept accept) {
  constexpr std::uint64_t zip64 = 1;
  constexpr std::size_t head_bytes = 4;
  while (extra.size() >= head_bytes) {
    const auto length = static_cast<std::size_t>(u16(extra, 2));
    if (length > extra.size() - head_bytes) return false;
    if (u16(extra, 0) == zip64 && !accept(extra.subspan(head_bytes, length))) return false;
    extra = extra.subspan(head_bytes + length);
  }
  return true;
}

}  // namespace

std::uint64_t u16(std::span<const std::byte> bytes, std::size_t offset) {
  return number_at(bytes, offset, 2);
}
std::uint64_t u32(std::span<const std::byte> bytes, std::size_t offset) {
  return number_at(bytes, offset, 4);
}
std::uint64_t u64(std::span<const std::byte> bytes, std::size_t offset) {
  return number_at(bytes, offset, 8);
}

std::optional<entry_numbers> widened(const entry_numbers& entry, std::span<const std::byte> extra) {
  std::optional<entry_numbers> found;
  const auto accept = [&](std::span<const std::byte> field) {
    const auto wide = widened_by(entry, field);
    if (!wide || (found && *found != *wide)) return false;
    found = wide;
    return true;
  };
  if (!accepts_all(extra, accept)) return std::nullopt;
  return found ? found : entry;
}

bool has_saturated_sizes(std::span<const std::byte> local_header) {
  return u32(local_header, 18) == saturated32 || u32(local_header, 22) == saturated32;
}

bool saturated_sizes_agree(std::span<const std::byte> local_header, std::span<const std::byte> extra,
                           const entry_numbers& directory) {
  const auto agrees = [](std::uint64_t narrow, std::uint64_t wide, std::uint64_t value) {
    return narrow != saturated32 || wide == 0 || wide == value;
  };
  const auto both_agree = [&](std::uint64_t size, std::uint64_t compressed) {
    return agrees(u32(local_header, 22), size, directory.size) &&
           agrees(u32(local_header, 18), compressed, directory.compressed);
  };
  bool is_given = false;
  const auto accept = [&](std::span<const std::byte> field) {
    is_given = true;
    return field.size() >= 16 && both_agree(u64(field, 0), u64(field, 8));  // a local field has both sizes
  };
  // Without a field, the size is really 2^32 - 1.
  return accepts_all(extra, accept) && (is_given || both_agree(saturated32, saturated32));
}

}  // namespace shardmesh::zip_fields
