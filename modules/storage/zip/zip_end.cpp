// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.storage;

import :zip_end;
import :zip_error;
import :zip_fields;

namespace shardmesh::zip_reading {
using namespace zip_fields;

namespace {

constexpr std::int64_t end_bytes = 22, locator_bytes = 20, end64_bytes = 56;
constexpr std::uint64_t end_signature = 0x06054b50, end64_signature = 0x06064b50, locator_signature = 0x07064b50;

/// Finds the offset of the end record. A comment may follow it. A comment that holds another end record is refused,
/// because readers would disagree about the archive's contents.
result<std::int64_t> find_end(const byte_source& source) {
  const std::int64_t size = source.size_bytes();
  if (size < end_bytes) return bad(source, "it is too short");
  std::optional<std::int64_t> found;
  for (const std::int64_t window : {std::int64_t{4096}, std::int64_t{0xffff} + end_bytes}) {
    const std::int64_t length = std::min(window, size);
    std::vector<std::byte> tail(static_cast<std::size_t>(length));
    SHARDMESH_TRY(source.read(size - length, tail));
    for (std::size_t at = tail.size() - end_bytes + 1; at-- > 0;) {
      if (tail[at] != std::byte{'P'} || u32(tail, at) != end_signature) continue;
      if (u16(tail, at + 20) != tail.size() - at - end_bytes) continue;
      if (found) return bad(source, "it has two end records");
      found = size - length + static_cast<std::int64_t>(at);
    }
    if (found || length == size) break;
  }
  if (!found) return bad(source, "it has no end record (cut off?)");
  return *found;
}

/// The numbers of an end record that depend on how many disks hold the archive.
struct disk_numbers {
  std::uint64_t end_disk = 0, directory_disk = 0, records_here = 0, records = 0;
};

result<void> check_disks(const byte_source& source, const disk_numbers& numbers, std::string_view place) {
  if (numbers.end_disk != 0 || numbers.directory_disk != 0)
    return several_disks(source, fmt::format("the {} is on disk {}, and the directory on disk {}", place,
                                             numbers.end_disk, numbers.directory_disk));
  if (numbers.records_here != numbers.records)
    return several_disks(source, fmt::format("the {} has {} of {} on its disk", place, numbers.records_here,
                                             detail::counted(numbers.records, "record")));
  return {};
}

/// Reads the ZIP64 end record, which has to be at `expected_at`, directly before its locator: some readers go there,
/// others to the locator's offset, and they would see different directories.
result<extent> read_end64(const byte_source& source, std::span<const std::byte> locator, std::int64_t expected_at) {
  if (u32(locator, 4) != 0)
    return several_disks(source, fmt::format("the ZIP64 end record is on disk {}", u32(locator, 4)));
  if (u32(locator, 16) != 1)  // PyTorch's reader refuses 0 as well
    return several_disks(source, "the ZIP64 locator counts " + detail::counted(u32(locator, 16), "disk"));
  if (expected_at < 0 || u64(locator, 8) != static_cast<std::uint64_t>(expected_at))
    return bad(source, "the ZIP64 end record does not lie directly before its locator");
  std::array<std::byte, end64_bytes> end64;
  SHARDMESH_TRY(source.read(expected_at, end64));
  if (u32(end64, 0) != end64_signature || u64(end64, 4) != static_cast<std::uint64_t>(end64_bytes - 12))
    return bad(source, "the ZIP64 end record is damaged");
  SHARDMESH_TRY(
      check_disks(source, {u32(end64, 16), u32(end64, 20), u64(end64, 24), u64(end64, 32)}, "ZIP64 end record"));
  return extent{u64(end64, 48), u64(end64, 40), u64(end64, 32)};
}

}  // namespace

result<extent> find_directory(const byte_source& source) {
  SHARDMESH_TRY(const std::int64_t end_at, find_end(source));
  std::array<std::byte, end_bytes> end;
  SHARDMESH_TRY(source.read(end_at, end));
  SHARDMESH_TRY(check_disks(source, {u16(end, 4), u16(end, 6), u16(end, 8), u16(end, 10)}, "end record"));
  extent found{u32(end, 16), u32(end, 12), u16(end, 10)};
  std::int64_t directory_end = end_at;

  std::array<std::byte, locator_bytes> locator{};
  if (end_at >= locator_bytes) SHARDMESH_TRY(source.read(end_at - locator_bytes, locator));
  if (u32(locator, 0) == locator_signature) {
    directory_end = end_at - locator_bytes - end64_bytes;
    SHARDMESH_TRY(const extent wide, read_end64(source, locator, directory_end));
    const auto agrees = [](std::uint64_t narrow, std::uint64_t value, std::uint64_t limit) {
      return narrow == value || narrow == limit;
    };
    if (!agrees(found.records, wide.records, saturated16) || !agrees(found.length, wide.length, saturated32) ||
        !agrees(found.offset, wide.offset, saturated32))
      return bad(source, "its two end records disagree");
    found = wide;
  }
  const auto limit = static_cast<std::uint64_t>(directory_end);
  if (found.offset > limit || found.length != limit - found.offset)
    return bad(source, "the directory does not lie directly before its end record");
  if (found.records > found.length / central_bytes)
    return bad(source, fmt::format("{} not fit into a directory of {}",
                                   detail::counted(found.records, "record does", "records do"),
                                   detail::counted(found.length, "byte")));
  return found;
}

}  // namespace shardmesh::zip_reading
