// SPDX-License-Identifier: Apache-2.0
// Appends numbers, little-endian, and texts to bytes. Only bodies of this room include it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace shardmesh::torch_file::put_bytes {

using buffer = std::vector<std::byte>;

inline void put(buffer& out, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}
inline void put(buffer& out, std::int64_t value, int width) {
  put(out, static_cast<std::uint64_t>(value), width);
}
inline void put(buffer& out, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}
inline void append(buffer& out, const buffer& more) {
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace shardmesh::torch_file::put_bytes
