// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>
module shardmesh.storage;

namespace shardmesh {

result<windowed_source> windowed_source::open(const byte_source& source, std::int64_t head_bytes,
                                              std::int64_t tail_bytes) {
  windowed_source made(source);
  const std::int64_t size = source.size_bytes();
  const bool whole = size <= head_bytes + tail_bytes;
  made.head_.resize(static_cast<std::size_t>(whole ? size : head_bytes));
  SHARDMESH_TRY(source.read(0, made.head_));
  if (whole) return made;
  made.tail_.resize(static_cast<std::size_t>(tail_bytes));
  SHARDMESH_TRY(source.read(size - tail_bytes, made.tail_));
  return made;
}

result<void> windowed_source::read(std::int64_t offset, std::span<std::byte> out) const {
  const auto served = [&](const std::vector<std::byte>& window, std::int64_t begin) {
    const auto length = static_cast<std::int64_t>(window.size()), wanted = static_cast<std::int64_t>(out.size());
    if (offset < begin || offset - begin > length || wanted > length - (offset - begin)) return false;
    std::copy_n(window.begin() + (offset - begin), wanted, out.begin());
    return true;
  };
  if (served(head_, 0) || served(tail_, size_bytes() - static_cast<std::int64_t>(tail_.size()))) return {};
  return source_->read(offset, out);
}

}  // namespace shardmesh
