// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
module shardmesh.core;

namespace shardmesh {

std::string to_string(const extents& values) {
  return fmt::format("[{}]", fmt::join(values.begin(), values.end(), ", "));
}

bool is_well_formed(const box& b) {
  if (b.offsets.rank() != b.sizes.rank()) return false;
  for (std::size_t d = 0; d < b.rank(); ++d)
    if (b.offsets[d] < 0 || b.sizes[d] < 0 || !checked_add(b.offsets[d], b.sizes[d])) return false;
  return true;
}

bool lies_within(const box& inner, const box& outer) {
  for (std::size_t d = 0; d < inner.rank(); ++d)
    if (inner.offsets[d] < outer.offsets[d] || inner.end(d) > outer.end(d)) return false;
  return true;
}

box shifted(const box& b, const extents& distance) {
  box moved = b;
  for (std::size_t d = 0; d < b.rank(); ++d) moved.offsets[d] += distance[d];
  return moved;
}

box relative_to(const box& b, const box& origin) {
  box moved = b;
  for (std::size_t d = 0; d < b.rank(); ++d) moved.offsets[d] -= origin.offsets[d];
  return moved;
}

std::string to_string(const box& b) {
  std::string text = "[";
  for (std::size_t d = 0; d < b.rank(); ++d) {
    fmt::format_to(std::back_inserter(text), "{}{}:", d == 0 ? "" : ", ", b.offsets[d]);
    if (const auto end = checked_add(b.offsets[d], b.sizes[d]))
      fmt::format_to(std::back_inserter(text), "{}", *end);
    else  // the end overflows; the error that prints this box says so
      fmt::format_to(std::back_inserter(text), "{}+{}", b.offsets[d], b.sizes[d]);
  }
  return text + ")";
}

}  // namespace shardmesh
