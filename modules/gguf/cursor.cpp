// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.gguf;

import shardmesh.storage;
import :cursor;

namespace shardmesh::gguf {

result<void> cursor::check(std::int64_t bytes, std::string_view what) const {
  if (bytes > left())
    return fail(errc::bad_format, fmt::format("ends within {}", what))
        .with_values(detail::counted(bytes, "more byte"), fmt::format("{}", left()));
  if (bytes > limit_ - (position_ - begin_)) return beyond_limit("its description is too long", limit_);
  return {};
}

result<void> cursor::copy(std::span<std::byte> to, std::string_view what) {
  SHARDMESH_TRY(check(static_cast<std::int64_t>(to.size()), what));
  while (!to.empty()) {
    const std::int64_t window_end = window_begin_ + static_cast<std::int64_t>(window_.size());
    if (position_ < window_begin_ || position_ >= window_end) {
      const std::int64_t bytes = std::min({window_bytes, left(), limit_});
      SHARDMESH_TRY(check_stored(bytes));
      window_.resize(static_cast<std::size_t>(bytes));
      window_begin_ = position_;
      SHARDMESH_TRY(source_.read(position_, window_));
      continue;
    }
    const auto part = static_cast<std::size_t>(std::min(window_end - position_, static_cast<std::int64_t>(to.size())));
    std::memcpy(to.data(), window_.data() + (position_ - window_begin_), part);
    position_ += static_cast<std::int64_t>(part);
    to = to.subspan(part);
  }
  return {};
}

// A hole of a sparse file could otherwise cost more than the file stores. A window is too small to be refused, so all
// that was passed is checked, each time that twice as much was read.
result<void> cursor::check_stored(std::int64_t more) {
  read_bytes_ += more;
  if (read_bytes_ <= checked_bytes_) return {};
  checked_bytes_ = 2 * read_bytes_;
  return check_readable(source_, begin_, std::min(limit_, position_ + more - begin_), limit_);
}

result<std::int64_t> cursor::count(std::int64_t item_bytes, std::string_view what) {
  SHARDMESH_TRY(const auto value, number<std::uint64_t>(what));
  const std::int64_t most = left() / item_bytes;
  if (value > static_cast<std::uint64_t>(most))
    return fail(errc::bad_format, fmt::format("{} is larger than the rest of the file allows", what))
        .with_values(fmt::format("at most {}", most), fmt::format("{}", value));
  return static_cast<std::int64_t>(value);
}

result<std::string> cursor::text(std::int64_t most, std::string_view what) {
  SHARDMESH_TRY(const std::int64_t length, count(1, what));
  if (length > most)
    return fail(errc::bad_format, fmt::format("{} is too long", what))
        .with_values(fmt::format("at most {} bytes", most), fmt::format("{}", length));
  SHARDMESH_TRY(check(length, what));
  SHARDMESH_TRY(check_readable(source_, position_, length, limit_));
  std::string made(static_cast<std::size_t>(length), '\0');
  SHARDMESH_TRY(copy(std::as_writable_bytes(std::span(made)), what));
  return made;
}

result<void> cursor::skip(std::int64_t bytes, std::string_view what) {
  SHARDMESH_TRY(check(bytes, what));
  position_ += bytes;
  return {};
}

}  // namespace shardmesh::gguf
