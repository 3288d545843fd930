// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.special_views.
module;
#include <cstddef>
#include <cstring>
#include <indices.hpp>
#include <iterator>
#include <limits>
#include <random>
#include <random_views.hpp>
#include <string>
#include <vector>
module shardmesh.test.special_views;

import shardmesh.core;
import shardmesh.kernels;
import shardmesh.test.reference_kernels;

using namespace shardmesh;
using random_views::owned_view;

namespace special_views {
namespace {

void vary(std::mt19937_64& random, const owned_view& v) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double special[] = {0.0,   -0.0,  inf,    -inf, std::numeric_limits<double>::quiet_NaN(),
                                1e-40, -6e-8, 5e-324, 448,  464,
                                65504, 65520, 3.4e38};
  if (!reference::has_values(v.view.type)) return;
  indices::for_each(v.view.sizes, [&](const extents& index) {
    const auto number = [&]() -> long double {
      if (random() % 3 == 0) return special[random() % std::size(special)];
      return static_cast<long double>(static_cast<int>(random() % 65) - 32) / 4;
    };
    if (random() % 3 == 0) return;  // keep the random bytes
    std::byte element[16]{};
    const reference::number value{number(), number()};
    reference::store(dtype::complex128, value, element);
    const bool is_held = reference::is_specified(dtype::complex128, element, v.view.type);
    reference::store(v.view.type, is_held ? value : reference::number{1, 1}, v.at(index));
  });
}

}  // namespace

owned_view make(std::mt19937_64& random, const extents& sizes, dtype type, bool broadcast) {
  owned_view made = random_views::make(random, sizes, type, static_cast<std::size_t>(item_bytes(type)), broadcast);
  vary(random, made);
  return made;
}

tensor_view in_copy(const owned_view& v, std::vector<std::byte>& memory) {
  memory = v.memory;
  tensor_view moved = v.view;
  moved.data = memory.data() + (v.view.data - v.memory.data());
  return moved;
}

std::string difference(const owned_view& got, const tensor_view& wanted, std::vector<std::byte>& expected) {
  std::string text;
  indices::for_each(got.view.sizes, [&](const extents& index) {
    const std::byte* const found = got.at(index);
    std::byte* const answer = wanted.data + got.offset_of(index);
    if (reference::same(got.view.type, found, answer))
      std::memcpy(answer, found, got.item);
    else if (text.empty())
      text = "element " + to_string(index) + " is " + value_text(got.view, index) + ", expected " +
             value_text(wanted, index);
  });
  if (text.empty() && expected != got.memory) text = "memory beside the elements was written";
  return text;
}

}  // namespace special_views
