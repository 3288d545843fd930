// SPDX-License-Identifier: Apache-2.0
// Compares random mappings with a model that enumerates indices: whole tensors and random boxes, in both directions,
// from files in one piece and from several chunks.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "counting_reader.hpp"
#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;

namespace {

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

arrangement grouped(dice& roll, std::vector<item> items) {
  std::shuffle(items.begin(), items.end(), roll.engine());
  arrangement made;
  for (item& one : items) {
    if (made.dimensions.empty() || roll.one_in(2)) made.dimensions.emplace_back();
    made.dimensions.back().push_back(std::move(one));
  }
  return made;
}

random_mapping draw(dice& roll) {
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

std::int64_t product(const named_sizes& sizes, const std::vector<std::string>& factors) {
  std::int64_t made = 1;
  for (const std::string& name : factors) made *= sizes.at(name);
  return made;
}

std::int64_t size_of(const named_sizes& sizes, const item& one) {
  if (one.segments.empty()) return sizes.at(one.factor);
  std::int64_t made = 0;
  for (const auto& [part, factors] : one.segments) made += product(sizes, factors);
  return made;
}

extents shape_of(const named_sizes& sizes, const arrangement& tensor) {
  extents made;
  for (const auto& dimension : tensor.dimensions) {
    std::int64_t size = 1;
    for (const item& one : dimension) size *= size_of(sizes, one);
    made.push_back(size);
  }
  return made;
}

// The row-major position of an element of `part`, whose factors have these values.
std::size_t position(const named_sizes& sizes, const arrangement& tensor, int part, const named_sizes& values) {
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

std::string text_of(const arrangement& tensor) {
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

std::string left_name(const random_mapping& mapping, std::size_t part, std::int64_t stacked) {
  return mapping.stacked.empty() ? fmt::format("left.{}", part) : fmt::format("left.{}.{}.w", part, stacked);
}

mapping_rules rules_of(const random_mapping& mapping) {
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
  INFO(text);
  return parse_mapping(text).value();
}

void fill(const random_mapping& mapping, small_tensors::tensors& left, small_tensors::tensors& right) {
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

void check_mapped(dice& roll, const std::filesystem::path& file, const mapping_rules& rules,
                  small_tensors::tensors& expected, bool check_sums) {
  const auto bytes = std::make_shared<std::atomic<std::int64_t>>(0);
  std::unique_ptr<checkpoint_reader> inner = std::make_unique<counting_reader>(open_checkpoint(file).value(), bytes);
  std::int64_t stored = 0;
  for (const tensor_entry& entry : inner->contents().tensors) stored += box::whole(entry.shape).volume() * 4;
  auto bound = bind_mapping(rules, inner->contents(), {}).value();
  const auto reader = mapped(std::move(inner), std::move(bound), {.check_sums = check_sums}).value();
  CHECK(small_tensors::read_all(*reader) == expected);
  // Each tensor reads each source at most once. Comparisons with checksums read them again.
  if (!check_sums) CHECK(bytes->load() <= stored * static_cast<std::int64_t>(expected.size()));
  for (auto& [key, whole] : expected)
    for (int i = 0; i < 4; ++i) {
      box part = box::whole(whole.shape);
      for (std::size_t d = 0; d < part.rank(); ++d) {
        part.offsets[d] = roll.below(whole.shape[d] + 1);
        part.sizes[d] = roll.below(whole.shape[d] - part.offsets[d] + 1);
      }
      CHECK(small_tensors::read(*reader, key, part) == small_tensors::part_of(whole, part));
    }
  CHECK(reader->finish_checks());
}

// The tensors with a moment of each, whose elements are the negative ones, and a step of 3.
small_tensors::tensors with_state(const small_tensors::tensors& parameters) {
  small_tensors::tensors all = parameters;
  for (const auto& [key, one] : parameters) {
    small_tensors::tensor moment = one;
    for (float& value : moment.values) value = value == 0 ? 0 : -value;  // filler stays 0
    all[fmt::format("optim.state.{}.exp_avg", key)] = std::move(moment);
    all[fmt::format("optim.state.{}.step", key)] = small_tensors::counted({}, 3);
  }
  return all;
}

// Every element of `expected` that is not filler is in one box of one source, which has the same elements.
void check_boxes(const mapping_rules& rules, const std::filesystem::path& file, small_tensors::tensors& sources,
                 small_tensors::tensors& expected) {
  const auto reader = open_checkpoint(file).value();
  const bound_mapping bound = bind_mapping(rules, reader->contents(), {}).value();
  for (const bound_tensor& tensor : bound.tensors) {
    small_tensors::tensor& whole = expected.at(tensor.key);
    const source_box_list list = source_boxes_of(bound, tensor, 100'000);
    CHECK(list.more == 0);
    std::vector<float> covered;
    for (const source_box& one : list.boxes) {
      auto made = small_tensors::part_of(whole, one.target).values;
      auto from = small_tensors::part_of(sources.at(reader->contents().tensors[one.source].key), one.from).values;
      covered.insert(covered.end(), made.begin(), made.end());
      std::sort(made.begin(), made.end());
      std::sort(from.begin(), from.end());
      CHECK(made == from);
    }
    std::vector<float> elements = whole.values;
    std::erase(elements, 0.0F);  // filler
    std::sort(elements.begin(), elements.end());
    std::sort(covered.begin(), covered.end());
    CHECK(covered == elements);
    const source_box_list cut = source_boxes_of(bound, tensor, 2);
    CHECK(cut.boxes.size() == std::min<std::size_t>(2, list.boxes.size()));
    CHECK(cut.more == static_cast<std::int64_t>(list.boxes.size() - cut.boxes.size()));
  }
}

}  // namespace

TEST_CASE("random mappings give the elements that the indices give, in both directions") {
  dice roll(random_seed::seed());
  const scratch_folder folder;
  for (std::uint64_t i = 0; i < random_seed::rounds(150); ++i) {
    const random_mapping mapping = draw(roll);
    const mapping_rules rules = rules_of(mapping);
    INFO("SHARDMESH_SEED=" << random_seed::seed() << " round " << i << ": " << to_string(rules.rules[0].index));
    small_tensors::tensors left, right;
    fill(mapping, left, right);
    const bool is_dcp = roll.one_in(2);
    const auto ending = [&](const char* name) {
      return folder / fmt::format("{}{}{}", name, i, is_dcp ? "" : ".safetensors");
    };
    small_tensors::write(ending("left"), left, 1 + roll.below(3));
    small_tensors::write(ending("right"), right, 1 + roll.below(3));
    check_mapped(roll, ending("left"), rules, right, roll.one_in(2));
    check_mapped(roll, ending("right"), rules.inverse(), left, roll.one_in(2));
    check_boxes(rules, ending("left"), left, right);
    check_boxes(rules.inverse(), ending("right"), right, left);
    std::filesystem::remove_all(ending("left"));
    std::filesystem::remove_all(ending("right"));
  }
}

TEST_CASE("optimizer state of random mappings moves like its parameters, in both directions") {
  dice roll(random_seed::seed());
  const scratch_folder folder;
  for (std::uint64_t i = 0; i < random_seed::rounds(50); ++i) {
    const random_mapping mapping = draw(roll);
    const mapping_rules rules = rules_of(mapping);
    INFO("SHARDMESH_SEED=" << random_seed::seed() << " round " << i << ": " << to_string(rules.rules[0].index));
    small_tensors::tensors left, right;
    fill(mapping, left, right);
    left = with_state(left);
    right = with_state(right);
    const auto of_left = folder / fmt::format("left{}", i), of_right = folder / fmt::format("right{}", i);
    small_tensors::write(of_left, left, 1 + roll.below(3));
    small_tensors::write(of_right, right, 1 + roll.below(3));
    check_mapped(roll, of_left, rules, right, roll.one_in(2));
    check_mapped(roll, of_right, rules.inverse(), left, roll.one_in(2));
    std::filesystem::remove_all(of_left);
    std::filesystem::remove_all(of_right);
  }
}
