// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>
module shardmesh.dcp;

import :item_comparison;

namespace shardmesh::dcp {
namespace {

constexpr std::int64_t small_item_bytes = std::int64_t{1} << 20;
constexpr std::int64_t block_bytes = std::int64_t{256} << 10;

// True when every record has a checksum, so that equal directories mean equal contents.
bool is_summed(const zip_directory& directory) {
  return std::ranges::all_of(directory.records(),
                             [](const zip_record& one) { return one.crc32 != 0 || one.size_bytes == 0; });
}

bool list_the_same(const zip_directory& a, const zip_directory& b) {
  return std::ranges::equal(a.records(), b.records(), [](const zip_record& one, const zip_record& other) {
    return one.name == other.name && one.crc32 == other.crc32 && one.size_bytes == other.size_bytes;
  });
}

}  // namespace

result<bool> item_comparison::have_equal_bytes(const byte_source& a, const byte_source& b) {
  const std::int64_t size = a.size_bytes();
  std::vector<std::byte> left(static_cast<std::size_t>(std::min(size, block_bytes))), right(left.size());
  for (std::int64_t at = 0; at < size; at += block_bytes) {
    const auto length = static_cast<std::size_t>(std::min(block_bytes, size - at));
    const std::span one(left.data(), length), other(right.data(), length);
    SHARDMESH_TRY(a.read(at, one));
    SHARDMESH_TRY(b.read(at, other));
    if (!std::ranges::equal(one, other)) return false;
  }
  return true;
}

result<bool> item_comparison::are_equal(const byte_source& a, const byte_source& b) {
  const std::int64_t size = a.size_bytes();
  if (size != b.size_bytes()) return false;
  if (size > small_item_bytes || size > left_bytes_) {
    const auto one = zip_directory::read(a), other = zip_directory::read(b);
    if (one && other && !list_the_same(*one, *other)) return false;
    if (one && other && is_summed(*one)) return true;
    if (size > left_bytes_) return false;
  }
  left_bytes_ -= size;
  return have_equal_bytes(a, b);
}

}  // namespace shardmesh::dcp
