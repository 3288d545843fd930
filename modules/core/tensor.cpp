// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/adapter.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
module shardmesh.core;

namespace shardmesh {

extents contiguous_strides(const extents& sizes) {
  constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max();
  extents strides = sizes;
  std::int64_t step = 1;
  for (std::size_t d = sizes.rank(); d-- > 0;) {
    strides[d] = step;
    step = checked_multiply(step, std::max<std::int64_t>(sizes[d], 1)).value_or(unreachable);
  }
  return strides;
}

bool is_contiguous(const extents& sizes, const extents& strides) {
  const extents expected = contiguous_strides(sizes);
  bool contiguous = true;
  for (std::size_t d = 0; d < sizes.rank(); ++d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && strides[d] != expected[d]) contiguous = false;
  }
  return contiguous;
}

namespace {

std::uint64_t magnitude(std::int64_t stride) {
  return stride < 0 ? 0 - static_cast<std::uint64_t>(stride) : static_cast<std::uint64_t>(stride);
}

// Returns whether steps along two dimensions lead to the same place: m steps along one are n along the other.
bool meet(const extents& sizes, const extents& strides, std::size_t one, std::size_t other) {
  const std::uint64_t a = magnitude(strides[one]), b = magnitude(strides[other]), common = std::gcd(a, b);
  return b / common < static_cast<std::uint64_t>(sizes[one]) && a / common < static_cast<std::uint64_t>(sizes[other]);
}

}  // namespace

// Elements that differ in three or more dimensions are not compared: only made-up strides give just these one place.
result<void> check_fillable(const extents& sizes, const extents& strides) {
  bool repeats = false, meets = false;
  for (std::size_t d = 0; d < sizes.rank(); ++d) {
    if (sizes[d] == 0) return {};
    repeats |= sizes[d] > 1 && strides[d] == 0;
  }
  for (std::size_t d = 0; d < sizes.rank() && !repeats; ++d)
    for (std::size_t other = 0; other < d && sizes[d] > 1; ++other)
      meets |= sizes[other] > 1 && meet(sizes, strides, d, other);
  if (!repeats && !meets) return {};
  error refused = fail(errc::unsupported, "the memory cannot be filled, because several elements share one address");
  if (repeats)
    return std::move(refused)
        .with_values("no stride of 0", "strides " + to_string(strides))
        .with_hint("fill a contiguous copy instead: expand shares memory between elements");
  return std::move(refused)
      .with_values("a place for each element", "strides " + to_string(strides) + " of sizes " + to_string(sizes))
      .with_hint("fill a contiguous copy instead: unfold shares memory between elements");
}

std::int64_t numel(const extents& sizes) {
  return box::whole(sizes).volume();
}

result<void> check_host_memory(device where) {
  if (where.type == device_type::cpu) return {};
  return fail(errc::unsupported, "the memory is not host memory")
      .with_values("cpu", to_string(where))
      .with_hint("copy the tensor to host memory first");
}

}  // namespace shardmesh
