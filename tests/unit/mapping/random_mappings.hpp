// SPDX-License-Identifier: Apache-2.0
// Random mappings, and a model of them that enumerates indices. It imports, so it is among the last headers that a test
// includes.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <string>
#include <utility>
#include <vector>

#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

namespace random_mappings {

using shardmesh::extents;
using shardmesh::mapping_rules;
using shardmesh::named_sizes;
using shardmesh::parse_mapping;

// A factor, or (with `segments`) a sum. A segment has a part's number, or -1 for filler, and its factors.
struct item {
  std::string factor;
  std::vector<std::pair<int, std::vector<std::string>>> segments;
};
struct arrangement {
  std::vector<std::vector<item>> dimensions;
};

struct random_mapping {
  named_sizes sizes;
  std::vector<arrangement> left;                // one per part
  std::vector<std::vector<std::string>> parts;  // the factors of each part
  arrangement right;
  std::string stacked;  // a factor that is in the left tensors' names; empty: none
};

inline arrangement grouped(dice& roll, std::vector<item> items) {
  std::shuffle(items.begin(), items.end(), roll.engine());
  arrangement made;
  for (item& one : items) {
    if (made.dimensions.empty() || roll.one_in(2)) made.dimensions.emplace_back();
    made.dimensions.back().push_back(std::move(one));
  }
  return made;
}

/// Draws a mapping of one to three left tensors, perhaps stacked ones, to one right tensor.
inline random_mapping draw(dice& roll) {
  random_mapping made;
  const auto factor = [&] {
    const std::string name = fmt::format("f{}", made.sizes.size());
    made.sizes[name] = 1 + roll.below(4);
    return name;
  };
  std::vector<std::string> common;
  for (std::int64_t i = roll.below(3); i > 0; --i) common.push_back(factor());
  const std::int64_t parts = 1 + roll.below(3);
  item sum;
  for (std::int64_t p = 0; p < parts; ++p) {
    std::vector<std::string> own;
    for (std::int64_t i = roll.below(3); i > 0; --i) own.push_back(factor());
    std::vector<std::string> all = common;
    all.insert(all.end(), own.begin(), own.end());
    std::vector<item> items;
    for (const std::string& name : all) items.push_back({name, {}});
    made.left.push_back(grouped(roll, std::move(items)));
    made.parts.push_back(all);
    std::shuffle(own.begin(), own.end(), roll.engine());
    sum.segments.emplace_back(static_cast<int>(p), own);
  }
  if (roll.one_in(3)) sum.segments.insert(sum.segments.begin() + roll.up_to(parts), {-1, {factor()}});
  std::vector<item> items{sum};
  for (const std::string& name : common) items.push_back({name, {}});
  made.right = grouped(roll, std::move(items));
  // One common factor may be in the names of the left tensors instead of their dimensions.
  if (!common.empty() && roll.one_in(3)) {
    made.stacked = common[0];
    for (arrangement& tensor : made.left) {
      for (auto& dimension : tensor.dimensions)
        std::erase_if(dimension, [&](const item& one) { return one.factor == made.stacked; });
      std::erase_if(tensor.dimensions, [](const auto& dimension) { return dimension.empty(); });
    }
  }
  return made;
}

/// The same left side with another arrangement of the right tensor.
inline random_mapping rearranged(dice& roll, random_mapping mapping) {
  std::vector<item> items;
  for (auto& dimension : mapping.right.dimensions)
    for (item& one : dimension) {
      std::shuffle(one.segments.begin(), one.segments.end(), roll.engine());
      items.push_back(std::move(one));
    }
  mapping.right = grouped(roll, std::move(items));
  return mapping;
}

inline std::int64_t product(const named_sizes& sizes, const std::vector<std::string>& factors) {
  std::int64_t made = 1;
  for (const std::string& name : factors) made *= sizes.at(name);
  return made;
}

inline std::int64_t size_of(const named_sizes& sizes, const item& one) {
  if (one.segments.empty()) return sizes.at(one.factor);
  std::int64_t made = 0;
  for (const auto& [part, factors] : one.segments) made += product(sizes, factors);
  return made;
}

inline extents shape_of(const named_sizes& sizes, const arrangement& tensor) {
  extents made;
  for (const auto& dimension : tensor.dimensions) {
    std::int64_t size = 1;
    for (const item& one : dimension) size *= size_of(sizes, one);
    made.push_back(size);
  }
  return made;
}

// The row-major position of an element of `part`, whose factors have these values.
inline std::size_t position(const named_sizes& sizes, const arrangement& tensor, int part, const named_sizes& values) {
  std::int64_t at = 0;
  for (const auto& dimension : tensor.dimensions)
    for (const item& one : dimension) {
      std::int64_t index = one.segments.empty() ? values.at(one.factor) : 0;
      for (const auto& [number, factors] : one.segments) {
        if (number == part) {
          std::int64_t inner = 0;
          for (const std::string& name : factors) inner = inner * sizes.at(name) + values.at(name);
          index += inner;
          break;
        }
        index += product(sizes, factors);
      }
      at = at * size_of(sizes, one) + index;
    }
  return static_cast<std::size_t>(at);
}

inline std::string text_of(const arrangement& tensor) {
  std::string made;
  for (const auto& dimension : tensor.dimensions) {
    std::vector<std::string> items;
    for (const item& one : dimension) {
      std::vector<std::string> segments;
      for (const auto& [part, factors] : one.segments)
        segments.push_back(fmt::format("{}:({})", part < 0 ? "_" : fmt::format("p{}", part), fmt::join(factors, " ")));
      items.push_back(segments.empty() ? one.factor : fmt::format("[{}]", fmt::join(segments, " | ")));
    }
    made += fmt::format(" ({})", fmt::join(items, " "));
  }
  return made;
}

inline std::string left_name(const random_mapping& mapping, std::size_t part, std::int64_t stacked) {
  return mapping.stacked.empty() ? fmt::format("left.{}", part) : fmt::format("left.{}.{}.w", part, stacked);
}

inline mapping_rules rules_of(const random_mapping& mapping) {
  std::string text = "left = 'a'\nright = 'b'\n[sizes]\n";
  for (const auto& [name, size] : mapping.sizes)
    if (name != mapping.stacked) text += fmt::format("{} = {}\n", name, size);
  text += "[captures]\n";
  if (!mapping.stacked.empty()) text += fmt::format("{} = {}\n", mapping.stacked, mapping.sizes.at(mapping.stacked));
  text += "[[rule]]\nright.b = 'right'\n";
  std::vector<std::string> tensors;
  for (std::size_t p = 0; p < mapping.left.size(); ++p) {
    text += mapping.stacked.empty() ? fmt::format("left.p{0} = 'left.{0}'\n", p)
                                    : fmt::format("left.p{0} = 'left.{0}.{{{1}}}.w'\n", p, mapping.stacked);
    tensors.push_back(fmt::format("p{}:{}", p, text_of(mapping.left[p])));
  }
  text += fmt::format("index = '{} -> b:{}'\n", fmt::join(tensors, ", "), text_of(mapping.right));
  return parse_mapping(text).value();
}

/// Makes the tensors of both sides. The elements are different positive numbers, and filler is 0.
inline void fill(const random_mapping& mapping, small_tensors::tensors& left, small_tensors::tensors& right) {
  float next = 1;
  const std::int64_t stack = mapping.stacked.empty() ? 1 : mapping.sizes.at(mapping.stacked);
  for (std::size_t p = 0; p < mapping.left.size(); ++p)
    for (std::int64_t s = 0; s < stack; ++s) {
      auto& made = left[left_name(mapping, p, s)] =
          small_tensors::counted(shape_of(mapping.sizes, mapping.left[p]), next);
      next += static_cast<float>(made.values.size());
    }
  auto& whole = right["right"];
  whole.shape = shape_of(mapping.sizes, mapping.right);
  whole.values.assign(static_cast<std::size_t>(small_tensors::volume(whole.shape)), 0);
  for (std::size_t p = 0; p < mapping.parts.size(); ++p) {
    const std::int64_t count = product(mapping.sizes, mapping.parts[p]);
    for (std::int64_t i = 0; i < count; ++i) {
      named_sizes values;
      std::int64_t rest = i;
      for (const std::string& name : mapping.parts[p])
        values[name] = rest % mapping.sizes.at(name), rest /= mapping.sizes.at(name);
      const auto& from = left[left_name(mapping, p, mapping.stacked.empty() ? 0 : values.at(mapping.stacked))];
      whole.values[position(mapping.sizes, mapping.right, static_cast<int>(p), values)] =
          from.values[position(mapping.sizes, mapping.left[p], static_cast<int>(p), values)];
    }
  }
}

/// The tensors with a moment of each, whose elements are the negative ones, and a step of 3.
inline small_tensors::tensors with_state(const small_tensors::tensors& parameters) {
  small_tensors::tensors all = parameters;
  for (const auto& [key, one] : parameters) {
    small_tensors::tensor moment = one;
    for (float& value : moment.values) value = value == 0 ? 0 : -value;  // filler stays 0
    all[fmt::format("optim.state.{}.exp_avg", key)] = std::move(moment);
    all[fmt::format("optim.state.{}.step", key)] = small_tensors::counted({}, 3);
  }
  return all;
}

}  // namespace random_mappings
