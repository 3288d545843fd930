// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
module shardmesh.delta;

import :byte_fields;

namespace shardmesh::delta {

void field_writer::add(const void* from, std::size_t count) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  bytes_.insert(bytes_.end(), bytes, bytes + count);
}

std::string field_reader::text() {
  const std::size_t count = number<std::uint32_t>();
  if (count > rest_.size()) is_whole_ = false;
  if (!is_whole_) return {};
  std::string made(reinterpret_cast<const char*>(rest_.data()), count);
  rest_ = rest_.subspan(count);
  return made;
}

void field_reader::take(void* to, std::size_t count) {
  if (count > rest_.size()) is_whole_ = false;
  if (!is_whole_) return;
  std::memcpy(to, rest_.data(), count);
  rest_ = rest_.subspan(count);
}

}  // namespace shardmesh::delta
