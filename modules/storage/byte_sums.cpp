// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>
module shardmesh.storage;

import :byte_sums;

namespace shardmesh {

result<void> for_each_piece(const byte_source& source, std::int64_t begin, std::int64_t length,
                            function_ref<void(std::span<const std::byte>)> visit) {
  constexpr std::int64_t piece_bytes = 1 << 20;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(length, piece_bytes)));
  for (std::int64_t at = 0; at < length;) {
    if (auto goes_on = detail::check_current_call(); !goes_on)
      return std::move(goes_on).error().with_file(source.name());
    const auto piece = std::span(buffer).first(static_cast<std::size_t>(std::min(length - at, piece_bytes)));
    SHARDMESH_TRY(source.read(begin + at, piece));
    visit(piece);
    at += static_cast<std::int64_t>(piece.size());
  }
  return {};
}

result<std::uint32_t> crc32_of_range(const byte_source& source, std::int64_t begin, std::int64_t length) {
  std::uint32_t crc = 0;
  SHARDMESH_TRY(for_each_piece(source, begin, length, [&](auto piece) { crc = crc32_of(piece, crc); }));
  return crc;
}

result<digest128> xxh3_of_range(const byte_source& source, std::int64_t begin, std::int64_t length) {
  xxh3_stream sum;
  SHARDMESH_TRY(for_each_piece(source, begin, length, [&](auto piece) { sum.update(piece); }));
  return sum.digest();
}

}  // namespace shardmesh
