// SPDX-License-Identifier: Apache-2.0
// Compares random mappings with a model that enumerates indices: whole tensors and random boxes, in both directions,
// from files in one piece and from several chunks.
#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

#include "counting_reader.hpp"
#include "random_mappings.hpp"
#include "small_tensors.hpp"

import shardmesh.checkpoint;
import shardmesh.mapping;

using namespace shardmesh;
using random_mappings::draw;
using random_mappings::fill;
using random_mappings::random_mapping;
using random_mappings::rules_of;
using random_mappings::with_state;

namespace {

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
