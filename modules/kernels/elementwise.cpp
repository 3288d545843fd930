// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
module shardmesh.kernels;

import :loops;

namespace shardmesh {
namespace {

template <class Change>
void for_each_element(const tensor_view& view, Change change) {
  const loop_nest nest = free_nest(view, view);
  const loop_nest::loop inner = nest.rank > 0 ? nest.inner() : loop_nest::loop{1, 0, 0};
  for_each_outer(nest, 1, [&](std::int64_t at, std::int64_t) {
    std::byte* element = view.data + at / 8;
    for (std::int64_t i = 0; i < inner.size; ++i, element += inner.a / 8) change(element);
  });
}

template <class Integer>
void negate_integers(const tensor_view& view) {
  for_each_element(view, [](std::byte* element) {
    Integer value;
    std::memcpy(&value, element, sizeof value);
    value = static_cast<Integer>(Integer{0} - value);
    std::memcpy(element, &value, sizeof value);
  });
}

void flip_sign(std::byte* last) {
  *last ^= std::byte{0x80};
}

}  // namespace

result<void> byte_swap(const tensor_view& view) {
  SHARDMESH_TRY(check_host_memory(view));
  if (bits(view.type) <= 8) return {};
  const std::int64_t item = item_bytes(view.type);
  const std::int64_t part = kind(view.type) == dtype_kind::complex ? item / 2 : item;
  for_each_element(view, [item, part](std::byte* element) {
    for (std::int64_t at = 0; at < item; at += part) std::reverse(element + at, element + at + part);
  });
  return {};
}

result<void> conjugate(const tensor_view& view) {
  SHARDMESH_TRY(check_host_memory(view));
  if (kind(view.type) != dtype_kind::complex) return {};
  const std::int64_t item = item_bytes(view.type);
  for_each_element(view, [item](std::byte* element) { flip_sign(element + item - 1); });
  return {};
}

result<void> negate(const tensor_view& view) {
  SHARDMESH_TRY(check_host_memory(view));
  switch (view.type) {
    case dtype::uint8:
    case dtype::int8:
      return negate_integers<std::uint8_t>(view), result<void>{};
    case dtype::uint16:
    case dtype::int16:
      return negate_integers<std::uint16_t>(view), result<void>{};
    case dtype::uint32:
    case dtype::int32:
      return negate_integers<std::uint32_t>(view), result<void>{};
    case dtype::uint64:
    case dtype::int64:
      return negate_integers<std::uint64_t>(view), result<void>{};
    case dtype::float8_e4m3fnuz:
    case dtype::float8_e5m2fnuz:  // 0x80 is NaN; NaN and the only zero stay unchanged
      for_each_element(view, [](std::byte* element) {
        if ((*element & std::byte{0x7F}) != std::byte{0}) flip_sign(element);
      });
      return {};
    case dtype::float16:
    case dtype::bfloat16:
    case dtype::float32:
    case dtype::float64:
    case dtype::float8_e4m3fn:
    case dtype::float8_e5m2:
    case dtype::complex32:
    case dtype::complex64:
    case dtype::complex128:
      break;
    default:
      return fail(errc::unsupported, "cannot negate " + std::string(name(view.type)));
  }
  const std::int64_t item = item_bytes(view.type);
  const bool pair = kind(view.type) == dtype_kind::complex;
  for_each_element(view, [item, pair](std::byte* element) {
    flip_sign(element + item - 1);
    if (pair) flip_sign(element + item / 2 - 1);
  });
  return {};
}

}  // namespace shardmesh
