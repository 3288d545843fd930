// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.replicas;

import shardmesh.layout;
import :box_cover;
import :described_part;

namespace shardmesh {
namespace {

constexpr std::size_t most_problems_of_tensor = 10;

}  // namespace

void check_cover_of(const merged_entry& entry, detail::problem_list& problems) {
  distribution_builder builder(entry.head.shape, owner_space::ranks);
  for (const merged_box& one : entry.boxes)
    for (const part_holder& holder : one.holders)
      builder.add(holder.rank, static_cast<std::int32_t>(holder.part), one.where.offsets, one.where.sizes);
  const auto made = builder.finish();
  if (!made) {
    error problem = made.error();
    return problems.add(std::move(problem).with_key(entry.head.key));
  }
  const cover_report cover = check_cover(*made, most_problems_of_tensor);
  for (const cover_problem& problem : cover.problems) {
    const bool is_gap = problem.kind == cover_kind::gap;
    error found = is_gap ? fail(errc::gap, "no rank has this box").with_hint("give each element to a rank")
                         : fail(errc::overlap, "two ranks have different boxes with common elements")
                               .with_rank(problem.first)
                               .with_rank(problem.second)
                               .with_hint("make the boxes equal or disjoint");
    problems.add(std::move(found).with_key(entry.head.key).with_box(problem.where));
  }
}

}  // namespace shardmesh
