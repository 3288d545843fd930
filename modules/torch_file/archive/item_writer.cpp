// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {
namespace {

// A piece is hashed and then written while it is in the core's cache. Pieces end at the file's page boundaries, so the
// next piece begins with a whole page.
constexpr std::int64_t piece_bytes = stable_piece::max_bytes;

// An archive up to this size is written in one call: head, elements, and tail.
constexpr std::int64_t small_archive_bytes = 1 << 16;

}  // namespace

item_writer::item_writer(staged_output& output, std::vector<written_item> items, const element_source& source)
    : output_(output), copies_(source.may_change()), items_(std::move(items)), progress_(items_.size()) {}

result<void> item_writer::write(item_id item, std::int64_t first_byte, std::span<const std::byte> bytes) {
  const auto i = static_cast<std::size_t>(item.slot);
  if (first_byte == 0) SHARDMESH_TRY(write_head(i));
  progress& state = progress_[i];
  if (first_byte != state.written)
    return fail(errc::io,
                fmt::format("internal: item {} was written at byte {} instead of {}", i, first_byte, state.written));
  while (!bytes.empty()) {
    const std::int64_t at = items_[i].data_begin + state.written;
    const std::span<const std::byte> piece = state.work->piece.of(
        bytes.first(std::min(bytes.size(), static_cast<std::size_t>(piece_bytes - at % piece_bytes))));
    state.work->sum.update(piece);
    if (items_[i].is_archive || items_[i].wants_crc32) state.crc32 = crc32_of(piece, state.crc32);
    SHARDMESH_TRY(write_or_keep(i, at, piece));
    state.written += static_cast<std::int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
  return state.written == items_[i].size_bytes ? write_tail(i) : result<void>{};
}

result<void> item_writer::write_empty_items() {
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].size_bytes != 0) continue;
    SHARDMESH_TRY(write_head(i));
    SHARDMESH_TRY(write_tail(i));
  }
  return {};
}

result<void> item_writer::check_complete() const {
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (progress_[i].work || progress_[i].written != items_[i].size_bytes)
      return fail(errc::io,
                  fmt::format("internal: item {} has {} of {} bytes", i, progress_[i].written, items_[i].size_bytes));
  return {};
}

result<void> item_writer::write_or_keep(std::size_t i, std::int64_t offset, std::span<const std::byte> bytes) {
  std::vector<std::byte>& pending = progress_[i].work->pending;
  if (pending.capacity() == 0) return output_.write(items_[i].file, offset, bytes);
  pending.insert(pending.end(), bytes.begin(), bytes.end());
  return {};
}

result<void> item_writer::write_head(std::size_t i) {
  progress_[i].work = std::make_unique<running>();
  if (copies_ && items_[i].size_bytes > 0)
    progress_[i].work->piece = stable_piece(static_cast<std::size_t>(std::min(items_[i].size_bytes, piece_bytes)));
  if (!items_[i].is_archive) return {};
  SHARDMESH_TRY(tensor_archive archive, tensor_archive::make(items_[i].type, items_[i].sizes));
  running& work = *progress_[i].work;
  work.sum.update(archive.prefix());
  if (archive.size_bytes() <= small_archive_bytes) work.pending.reserve(static_cast<std::size_t>(archive.size_bytes()));
  work.archive = std::move(archive);
  return write_or_keep(i, items_[i].begin, work.archive->prefix());
}

result<void> item_writer::write_tail(std::size_t i) {
  progress& state = progress_[i];
  state.end = items_[i].data_begin + items_[i].size_bytes;
  if (state.work->archive) {
    const std::vector<std::byte> suffix = state.work->archive->suffix(state.crc32);
    state.work->sum.update(suffix);
    SHARDMESH_TRY(write_or_keep(i, state.end, suffix));
    state.end += static_cast<std::int64_t>(suffix.size());
    if (!state.work->pending.empty())
      SHARDMESH_TRY(output_.write(items_[i].file, items_[i].begin, state.work->pending));
  }
  state.digest = state.work->sum.digest();
  state.work.reset();
  return {};
}

}  // namespace shardmesh::torch_file
