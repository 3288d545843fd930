// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :box_writer;

namespace shardmesh {

box_writer::box_writer(staged_output& output, std::vector<placed_part> parts)
    : output_(output), parts_(std::move(parts)) {
  progress_.reserve(parts_.size());
  for (const placed_part& part : parts_) {
    progress& made = progress_.emplace_back();
    made.is_whole = part.where == box::whole(part.shape);
    made.size_bytes = size_bytes(part.type, part.where.volume()).value_or(0);
    made.run_bytes = made.size_bytes;
    made.first_run = part.begin;
    if (made.is_whole) continue;
    const std::int64_t width = item_bytes(part.type);
    const extents strides = contiguous_strides(part.shape);
    std::size_t inner = part.shape.rank();
    for (made.run_bytes = width; inner > 0;) {
      --inner;
      made.run_bytes *= part.where.sizes[inner];
      if (part.where.sizes[inner] != part.shape[inner]) break;
    }
    for (std::size_t d = 0; d < inner; ++d) made.leading.push_back(part.where.sizes[d]);
    for (std::size_t d = 0; d < part.shape.rank(); ++d) made.first_run += part.where.offsets[d] * strides[d] * width;
  }
}

std::int64_t box_writer::place_of_run(std::size_t part, std::int64_t run) const {
  const placed_part& one = parts_[part];
  const extents strides = contiguous_strides(one.shape);
  std::int64_t elements = 0;
  const extents& leading = progress_[part].leading;
  for (std::size_t d = leading.rank(); d-- > 0; run /= leading[d]) elements += run % leading[d] * strides[d];
  return progress_[part].first_run + elements * item_bytes(one.type);
}

result<void> box_writer::write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) {
  const auto part = static_cast<std::size_t>(item.slot);
  progress& state = progress_[part];
  if (first_byte != state.written)
    return fail(errc::io,
                fmt::format("internal: part {} was written at byte {} instead of {}", part, first_byte, state.written));
  if (state.is_whole) return write_whole(part, bytes);
  while (!bytes.empty()) {
    const std::int64_t within = state.written % state.run_bytes;
    const auto length = std::min(static_cast<std::int64_t>(bytes.size()), state.run_bytes - within);
    const std::int64_t at = place_of_run(part, state.written / state.run_bytes) + within;
    SHARDMESH_TRY(output_.write(parts_[part].file, at, bytes.first(static_cast<std::size_t>(length))));
    state.written += length;
    bytes = bytes.subspan(static_cast<std::size_t>(length));
  }
  return {};
}

result<void> box_writer::write_whole(std::size_t part, std::span<const std::byte> bytes) {
  progress& state = progress_[part];
  if (state.written == 0)
    state.piece = stable_piece(std::min(static_cast<std::size_t>(state.size_bytes), stable_piece::max_bytes));
  while (!bytes.empty()) {
    const std::int64_t at = state.first_run + state.written;
    const std::size_t room = stable_piece::max_bytes - static_cast<std::size_t>(at) % stable_piece::max_bytes;
    const std::span<const std::byte> piece = state.piece.of(bytes.first(std::min(bytes.size(), room)));
    state.sum.update(piece);
    SHARDMESH_TRY(output_.write(parts_[part].file, at, piece));
    state.written += static_cast<std::int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
  if (state.written == state.size_bytes) state.piece = {};
  return {};
}

result<void> box_writer::check_complete() const {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (progress_[i].written != progress_[i].size_bytes)
      return fail(errc::io, fmt::format("internal: part {} has {} of {} bytes", i, progress_[i].written,
                                        progress_[i].size_bytes));
  return {};
}

}  // namespace shardmesh
