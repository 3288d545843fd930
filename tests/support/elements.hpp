// SPDX-License-Identifier: Apache-2.0
// Elements of a tensor as row-major numbers: a rank's elements are a list of numbers in local order. Include before
// imports.
#pragma once
#include <cstddef>
#include <cstdint>
#include <golden.hpp>
#include <indices.hpp>
#include <nlohmann/json.hpp>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/zip.hpp>
#include <utility>
#include <vector>

namespace elements {

using numbers = std::vector<std::int64_t>;

/// The elements with these indices per dimension, in order.
inline numbers at(const std::vector<numbers>& index, const shardmesh::extents& shape) {
  numbers made{0};
  for (const auto& [along, size] : ranges::views::zip(index, shape)) {
    numbers next;
    for (const auto& [head, i] : ranges::views::cartesian_product(made, along)) next.push_back(head * size + i);
    made = std::move(next);
  }
  return made;
}

/// The elements of a box (`shardmesh::box`, a module type).
template <class Box>
numbers in(const Box& where, const shardmesh::extents& shape) {
  numbers made;
  indices::for_each_in(where, [&](const auto& index) { made.push_back(indices::row_major(index, shape)); });
  return made;
}

/// The elements that a rank holds according to seeds/tp_fsdp.json: a box, indices per dimension, or numbers.
inline numbers held(const nlohmann::json& holds, const shardmesh::extents& shape) {
  if (holds.contains("linear")) return holds["linear"].get<numbers>();
  if (holds.contains("index")) return at(holds["index"].get<std::vector<numbers>>(), shape);
  if (!holds.contains("box")) return {};
  const struct {
    shardmesh::extents offsets, sizes;
  } where{golden::to_extents(holds["box"][0]), golden::to_extents(holds["box"][1])};
  return in(where, shape);
}

}  // namespace elements
