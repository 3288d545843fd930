// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>
module shardmesh.storage;

import :read_ahead;

namespace shardmesh {
namespace {

constexpr std::int64_t first_window_bytes = 64 << 10, most_window_bytes = 1 << 20;
constexpr std::int64_t near_bytes = 64 << 10;  // between two ranges of one stream
constexpr std::int64_t most_kept_bytes = std::int64_t{64} << 20;

std::atomic<std::int64_t> kept_bytes = 0;  // by all windows of the process

}  // namespace

struct read_ahead::window {
  window(std::int64_t from, std::int64_t size) : begin(from), bytes(static_cast<std::size_t>(size)) {
    kept_bytes += size;
  }
  window(const window&) = delete;
  window& operator=(const window&) = delete;
  ~window() { kept_bytes -= std::ssize(bytes); }
  std::int64_t end() const { return begin + std::ssize(bytes); }
  bool holds(std::int64_t offset, std::int64_t length) const { return offset >= begin && offset + length <= end(); }
  void copy_to(std::int64_t offset, std::span<std::byte> out) const {
    std::copy_n(bytes.begin() + (offset - begin), out.size(), out.begin());
  }

  std::int64_t begin;
  std::vector<std::byte> bytes;
};

result<void> read_ahead::read(const byte_source& from, std::int64_t offset, std::span<std::byte> out) const {
  const auto length = std::ssize(out);
  const std::int64_t most = std::min(from.bytes_per_request(), most_window_bytes);
  if (most < first_window_bytes || length > first_window_bytes / 2) return from.read(offset, out);
  const place found = find(offset, length, most);
  if (found.bytes) {
    found.bytes->copy_to(offset, out);
    return {};
  }
  const std::int64_t size = std::min(found.window_bytes, from.size_bytes() - offset);
  if (size <= length || kept_bytes + size > most_kept_bytes) {
    SHARDMESH_TRY(from.read(offset, out));
    remember(offset, offset + length, found.window_bytes, nullptr);
    return {};
  }
  const auto made = std::make_shared<window>(offset, size);
  SHARDMESH_TRY(from.read(offset, made->bytes));
  made->copy_to(offset, out);
  remember(offset, offset + length, found.window_bytes, made);
  return {};
}

// Call it with the mutex locked. Returns the stream that ends shortly before a place, or null.
read_ahead::stream* read_ahead::stream_before(std::int64_t offset) const {
  for (stream& one : streams_)
    if (one.end >= 0 && offset >= one.end && offset - one.end <= near_bytes) return &one;
  return nullptr;
}

read_ahead::place read_ahead::find(std::int64_t offset, std::int64_t length, std::int64_t most_bytes) const {
  const std::scoped_lock guard(lock_);
  for (stream& one : streams_)
    if (one.bytes && one.bytes->holds(offset, length)) {
      one.end = std::max(one.end, offset + length);
      one.used_at = ++clock_;
      place found{one.bytes, 0};
      // Its last byte has been read. Hundreds of open files that each kept a window would take all of the memory.
      if (offset + length == found.bytes->end()) one.bytes = nullptr;
      return found;
    }
  const stream* const continued = stream_before(offset);
  if (continued == nullptr) return {};
  return {nullptr, std::min(continued->next_bytes == 0 ? first_window_bytes : continued->next_bytes, most_bytes)};
}

void read_ahead::remember(std::int64_t offset, std::int64_t end, std::int64_t window_bytes,
                          std::shared_ptr<const window> bytes) const {
  const std::scoped_lock guard(lock_);
  stream* to = window_bytes > 0 ? stream_before(offset) : nullptr;
  if (to == nullptr)
    to = &*std::min_element(streams_.begin(), streams_.end(),
                            [](const stream& a, const stream& b) { return a.used_at < b.used_at; });
  *to = {end, 2 * window_bytes, ++clock_, std::move(bytes)};
}

}  // namespace shardmesh
