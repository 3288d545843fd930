// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.reference_kernels.
module;
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <indices.hpp>
#include <reference_elements.hpp>

module shardmesh.test.reference_kernels;

import shardmesh.core;

using namespace shardmesh;

namespace reference {
namespace {

using namespace reference_elements;

// --- elements of views ---

template <class View>
auto* element_at(const View& view, const extents& index) {
  auto* element = view.data;
  for (std::size_t d = 0; d < index.rank(); ++d) element += index[d] * view.strides[d] * item_bytes(view.type);
  return element;
}

// Bits may precede `data`: shifts round down, divisions do not.
bool bit_at(const std::byte* data, std::int64_t bit) {
  return (std::to_integer<unsigned>(data[bit >> 3]) >> (bit & 7) & 1u) != 0;
}
void set_bit(std::byte* data, std::int64_t bit, bool value) {
  const auto mask = static_cast<std::byte>(1u << (bit & 7));
  data[bit >> 3] = value ? data[bit >> 3] | mask : data[bit >> 3] & ~mask;
}

// Copies elements of any width, low bits first.
void copy_bits(const tensor_view& to, const const_tensor_view& from) {
  const int width = bits(to.type);
  indices::for_each(to.sizes, [&](const extents& index) {
    std::int64_t t = 0, f = 0;
    for (std::size_t d = 0; d < index.rank(); ++d) {
      t += index[d] * to.strides[d] * width;
      f += index[d] * from.strides[d] * width;
    }
    for (int b = 0; b < width; ++b) set_bit(to.data, t + b, bit_at(from.data, f + b));
  });
}

template <class Change>
void change_parts(const tensor_view& view, Change change) {
  const auto parts = is_complex(view.type) ? 2 : 1;
  const dtype part = part_of(view.type);
  indices::for_each(view.sizes, [&](const extents& index) {
    for (int p = 0; p < parts; ++p) change(part, element_at(view, index) + p * item_bytes(part), p);
  });
}

void flip_sign(dtype part, std::byte* element) {
  element[item_bytes(part) - 1] ^= std::byte{0x80};
}

}  // namespace

number load(dtype type, const std::byte* element) {
  const reference_elements::number value = reference_elements::load(type, element);
  return {value.real, value.imaginary};
}

void store(dtype type, const number& value, std::byte* element) {
  reference_elements::store(type, {value.real, value.imaginary}, element);
}

bool has_values(dtype type) {
  return reference_elements::has_values(type);
}

bool is_specified(dtype from, const std::byte* element, dtype to) {
  return reference_elements::is_specified(from, element, to);
}

bool same(dtype type, const std::byte* a, const std::byte* b) {
  return reference_elements::same(type, a, b);
}

void copy(const tensor_view& to, const const_tensor_view& from) {
  if (to.type == from.type) return copy_bits(to, from);
  indices::for_each(to.sizes, [&](const extents& index) {
    reference_elements::convert(from.type, element_at(from, index), to.type, element_at(to, index));
  });
}

void accumulate(const tensor_view& to, const const_tensor_view& from, reduce_op op) {
  indices::for_each(to.sizes, [&](const extents& index) {
    std::byte term[16];
    const std::byte* const given = element_at(from, index);
    if (from.type == to.type)
      std::memcpy(term, given, static_cast<std::size_t>(item_bytes(to.type)));
    else
      reference_elements::convert(from.type, given, to.type, term);
    combine(to.type, element_at(to, index), term, op);
  });
}

void fill_identity(const tensor_view& view, reduce_op op) {
  indices::for_each(view.sizes, [&](const extents& index) { store_identity(view.type, op, element_at(view, index)); });
}

void scale(const tensor_view& view, double factor) {
  change_parts(view, [&](dtype part, std::byte* element, int) {
    store_part(part, static_cast<double>(load_part(part, element)) * factor, element);
  });
}

void divide(const tensor_view& view, double divisor) {
  change_parts(view, [&](dtype part, std::byte* element, int) {
    store_part(part, static_cast<double>(load_part(part, element)) / divisor, element);
  });
}

void byte_swap(const tensor_view& view) {
  change_parts(view, [](dtype part, std::byte* element, int) { std::reverse(element, element + item_bytes(part)); });
}

void conjugate(const tensor_view& view) {
  change_parts(view, [](dtype part, std::byte* element, int which) {
    if (which == 1) flip_sign(part, element);
  });
}

void negate(const tensor_view& view) {
  change_parts(view, [](dtype part, std::byte* element, int) {
    const auto format = format_of(part);
    if (kind(part) == dtype_kind::integer)
      put_integer(part, ~integer_at(part, element) + 1, element);
    else if (!format || format->kind != specials::no_minus || (*element & std::byte{0x7F}) != std::byte{0})
      flip_sign(part, element);  // otherwise it is the only zero, or the only NaN
  });
}

differences compare(const const_tensor_view& a, const const_tensor_view& b) {
  const auto equal = [](long double x, long double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  differences found;
  indices::for_each(a.sizes, [&](const extents& index) {
    const std::byte *const p = element_at(a, index), *const q = element_at(b, index);
    bool is_same = false;
    if (has_values(a.type)) {
      const number x = load(a.type, p), y = load(b.type, q);
      is_same = equal(x.real, y.real) && equal(x.imaginary, y.imaginary);
    } else {
      is_same = std::memcmp(p, q, static_cast<std::size_t>(item_bytes(a.type))) == 0;
    }
    if (!is_same && found.different++ == 0) found.first_index = index;
  });
  return found;
}

}  // namespace reference
