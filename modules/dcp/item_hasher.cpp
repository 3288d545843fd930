// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.dcp;

import :item_hasher;

namespace shardmesh::dcp {

std::int32_t item_hasher::add(dtype type, const extents& sizes) {
  items_.push_back({type, sizes, nullptr, std::nullopt});
  return static_cast<std::int32_t>(items_.size() - 1);
}

result<void> item_hasher::write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) {
  hashed_item& one = items_[static_cast<std::size_t>(item.slot)];
  if (first_byte == 0) {
    SHARDMESH_TRY(torch_file::tensor_archive archive, torch_file::tensor_archive::make(one.type, one.sizes));
    one.work = std::make_unique<running>(std::move(archive));
    one.work->sum.update(one.work->archive.prefix());
  }
  if (!one.work || first_byte != one.work->hashed)
    return fail(errc::io, fmt::format("internal: item {} was hashed at byte {} instead of {}", item.slot, first_byte,
                                      one.work ? one.work->hashed : 0));
  while (!bytes.empty()) {
    // Both checksums of a piece are computed while it is in the core's cache.
    const std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), stable_piece::max_bytes));
    one.work->sum.update(piece);
    one.work->crc32 = crc32_of(piece, one.work->crc32);
    one.work->hashed += static_cast<std::int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
  if (one.work->hashed < one.work->archive.data_bytes()) return {};
  one.work->sum.update(one.work->archive.suffix(one.work->crc32));
  one.digest = one.work->sum.digest();
  one.work.reset();
  return {};
}

}  // namespace shardmesh::dcp
