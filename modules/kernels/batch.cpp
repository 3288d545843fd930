// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.kernels;

import :lanes;
import :loops;

namespace shardmesh {
namespace {

const_tensor_view at_zero(const placed_view& v) {
  return {nullptr, v.type, {}, v.sizes, v.strides};
}

error no_kernel(const std::string& what, dtype type) {
  return fail(errc::unsupported, what + " of " + std::string(name(type)) + " is not defined");
}

// The lowest byte that the loops reach from an offset, and one past the highest. Nothing if they exceed 64 bits.
struct reach {
  std::int64_t low = 0, high = 0;
};
std::optional<reach> reach_of(std::int64_t offset, std::span<const batch_loop> loops, std::int64_t batch_loop::* stride,
                              std::int64_t item) {
  std::optional<std::int64_t> low = offset, high = checked_add(offset, item);
  for (const batch_loop& l : loops) {
    const auto way = checked_multiply(l.size - 1, l.*stride);
    if (!way || !low || !high) return std::nullopt;
    (*way < 0 ? low : high) = checked_add(*way < 0 ? *low : *high, *way);
  }
  if (!low || !high) return std::nullopt;
  return reach{*low, *high};
}

// Whether two indices lead to one element of the destination. Loops come with the largest stride first. If each stride
// passes over everything that the inner loops reach, no two do. Otherwise the elements are listed, up to a limit;
// beyond it, the answer is true.
bool writes_twice(std::span<const batch_loop> loops, std::int64_t item) {
  constexpr std::int64_t most_listed = std::int64_t{1} << 22;
  std::int64_t inner = item, count = 1;
  bool apart = true;
  for (std::size_t i = loops.size(); i-- > 0;) {
    apart = apart && loops[i].to >= inner;
    inner += loops[i].to * (loops[i].size - 1);
    count = count > most_listed / loops[i].size ? most_listed + 1 : count * loops[i].size;
  }
  if (apart) return false;
  if (count > most_listed) return true;
  std::vector<std::int64_t> places{0};
  for (const batch_loop& l : loops) {
    const std::size_t known = places.size();
    for (std::int64_t i = 1; i < l.size; ++i)
      for (std::size_t k = 0; k < known; ++k) places.push_back(places[k] + i * l.to);
  }
  std::sort(places.begin(), places.end());
  return std::adjacent_find(places.begin(), places.end(),
                            [&](std::int64_t a, std::int64_t b) { return b - a < item; }) != places.end();
}

// Converts the loops to bytes. A sub-byte dtype becomes uint8, if its runs are whole bytes.
result<std::vector<batch_loop>> loops_in_bytes(const loop_nest& nest, batch_item& item) {
  std::vector<batch_loop> loops;
  std::size_t rank = nest.rank;
  const std::int64_t item_bits = bits(item.to_type);
  if (item_bits % 8 != 0) {
    std::int64_t run = item_bits;
    if (rank > 0 && nest.inner().a == item_bits && nest.inner().b == item_bits) run *= nest.loops[--rank].size;
    bool whole = run % 8 == 0;
    for (std::size_t d = 0; d < rank; ++d) whole = whole && nest.loops[d].a % 8 == 0 && nest.loops[d].b % 8 == 0;
    if (!whole || nest.a % 8 != 0 || nest.b % 8 != 0)
      return fail(errc::unaligned,
                  "a run of " + std::string(name(item.to_type)) + " does not start and end at byte boundaries");
    item.to_type = item.from_type = dtype::uint8;
    for (std::size_t d = 0; d < rank; ++d)
      loops.push_back({nest.loops[d].size, nest.loops[d].a / 8, nest.loops[d].b / 8});
    if (run > 8) loops.push_back({run / 8, 1, 1});
    return loops;
  }
  for (std::size_t d = 0; d < rank; ++d)
    loops.push_back({nest.loops[d].size, nest.loops[d].a / 8, nest.loops[d].b / 8});
  return loops;
}

result<void> check_sizes_fit(const placed_view& v) {
  if (v.sizes.rank() == v.strides.rank()) return {};
  return fail(errc::shape_mismatch, "a view does not have as many strides as sizes")
      .with_values(std::to_string(v.sizes.rank()), std::to_string(v.strides.rank()));
}

}  // namespace

placed_view place(std::uint32_t slot, const std::byte* base, const const_tensor_view& view) {
  return {slot, view.data - base, view.type, view.sizes, view.strides};
}

result<void> batch_builder::add(batch_item item, const placed_view& to, const placed_view& from) {
  SHARDMESH_TRY(check_sizes_fit(to));
  SHARDMESH_TRY(check_sizes_fit(from));
  SHARDMESH_TRY(check_shapes(to.sizes, from.sizes));
  if (const auto volume = checked_volume(to.sizes); !volume)
    return fail(errc::overflow, "the sizes of a view overflow 64 bits").with_values("", to_string(to.sizes));
  const const_tensor_view a = at_zero(to), b = at_zero(from);
  const loop_nest nest = free_nest(a, b);
  if (nest.empty) return {};
  item.to_type = to.type;
  item.from_type = from.type;
  SHARDMESH_TRY(std::vector<batch_loop> loops, loops_in_bytes(nest, item));
  const std::int64_t width = item_bytes(item.to_type);
  if (writes_twice(loops, width))
    return fail(errc::invalid_argument, "two indices of a destination refer to the same memory")
        .with_values("strides that keep elements apart",
                     to_string(to.sizes) + " with strides " + to_string(to.strides));
  item.to_slot = to.slot;
  item.from_slot = from.slot;
  item.to_offset = to.offset_bytes + nest.a / 8;
  item.from_offset = from.offset_bytes + nest.b / 8;
  if (!reach_of(item.to_offset, loops, &batch_loop::to, width) ||
      !reach_of(item.from_offset, loops, &batch_loop::from, item_bytes(item.from_type)))
    return fail(errc::overflow, "the strides of a view reach beyond the address space")
        .with_values("", to_string(to.strides) + " and " + to_string(from.strides));

  // If there are too many loops, those with the largest strides are unrolled.
  const std::size_t unrolled = loops.size() > batch_max_loops ? loops.size() - batch_max_loops : 0;
  item.rank = static_cast<std::uint8_t>(loops.size() - unrolled);
  std::copy(loops.begin() + static_cast<std::ptrdiff_t>(unrolled), loops.end(), item.loops);
  std::vector<std::int64_t> at(unrolled, 0);
  for (;;) {
    items_.push_back(item);
    std::size_t d = unrolled;
    for (; d > 0; --d) {
      const batch_loop& l = loops[d - 1];
      item.to_offset += l.to;
      item.from_offset += l.from;
      if (++at[d - 1] < l.size) break;
      item.to_offset -= l.to * l.size;
      item.from_offset -= l.from * l.size;
      at[d - 1] = 0;
    }
    if (d == 0) return {};
  }
}

result<void> batch_builder::copy(const placed_view& to, const placed_view& from, std::uint32_t phase) {
  if (!is_convertible(from.type, to.type))
    return fail(errc::unsupported,
                "no conversion from " + std::string(name(from.type)) + " to " + std::string(name(to.type)));
  return add({.op = batch_op::copy, .phase = phase}, to, from);
}

result<void> batch_builder::accumulate(const placed_view& to, const placed_view& from, reduce_op op,
                                       std::uint32_t phase) {
  if (!is_combinable(to.type, op)) return no_kernel(std::string(to_string(op)), to.type);
  if (!is_convertible(from.type, to.type))
    return fail(errc::unsupported,
                "no conversion from " + std::string(name(from.type)) + " to " + std::string(name(to.type)));
  return add({.op = batch_op::accumulate, .reduction = op, .phase = phase}, to, from);
}

result<void> batch_builder::fill_identity(const placed_view& to, reduce_op op, std::uint32_t phase) {
  if (!is_combinable(to.type, op)) return no_kernel(std::string(to_string(op)), to.type);
  return add({.op = batch_op::fill, .reduction = op, .phase = phase}, to, to);
}

result<void> batch_builder::scale(const placed_view& to, double factor, std::uint32_t phase) {
  if (!is_scalable(to.type)) return no_kernel("scale", to.type);
  return add({.op = batch_op::scale, .phase = phase, .factor = factor}, to, to);
}

result<void> batch_builder::divide(const placed_view& to, double divisor, std::uint32_t phase) {
  if (!is_scalable(to.type)) return no_kernel("divide", to.type);
  return add({.op = batch_op::divide, .phase = phase, .factor = divisor}, to, to);
}

}  // namespace shardmesh
