// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>
module shardmesh.transfer;

import :collective;
import :collective_groups;

namespace shardmesh {
namespace {

// Bytes of a block for one call. Sums and messages take a few times this size; a call that receives from all ranks
// takes this size for each rank. The size must be equal on every rank, so it does not depend on the tensors' addresses.
std::int64_t slab_bytes(const transfer_plan& plan, const collective_use& use) {
  constexpr std::int64_t of_reductions = std::int64_t{4} << 20, of_copies = std::int64_t{32} << 20;
  const bool copies = use.kind == collective_kind::all_gather || use.kind == collective_kind::broadcast;
  const std::int64_t largest = copies ? of_copies : of_reductions, budget = plan.options().memory_bytes;
  const std::int64_t all = budget > 0 ? std::clamp<std::int64_t>(budget / 8, 1, largest) : largest;
  return std::max<std::int64_t>(all / std::max(use.sent(), use.received()), 1);
}

// Whether every network library combines this dtype directly. Other dtypes are combined here, from messages.
bool is_combined_by_networks(dtype type, reduce_op op) {
  constexpr dtype integers[] = {dtype::int8, dtype::uint8, dtype::int32, dtype::uint32, dtype::int64, dtype::uint64};
  constexpr dtype floats[] = {dtype::float16, dtype::bfloat16, dtype::float32, dtype::float64};
  const bool orders = op == reduce_op::sum || op == reduce_op::product || op == reduce_op::min || op == reduce_op::max;
  if (std::find(std::begin(integers), std::end(integers), type) != std::end(integers)) return orders;
  if (std::find(std::begin(floats), std::end(floats), type) != std::end(floats)) return orders || op == reduce_op::avg;
  return false;
}

// Whether the caller permits this transfer's kind of collective.
bool is_chosen(const tensor_transfer& t, const collective_choice& choice) {
  if (t.from.reduction() == reduce_op::none) return choice.gathers;
  const bool is_network = choice.gathers;
  return choice.reductions && (!is_network || is_combined_by_networks(t.from_type, t.from.reduction()));
}

}  // namespace

collective_plan collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks,
                               const collective_choice& choice) {
  // Groups take a network's memory and time. Beyond this number, transfers send messages.
  constexpr std::size_t most_groups = 8;
  collective_plan made;
  for (std::size_t i = 0; i < plan.transfers().size(); ++i) {
    const tensor_transfer& t = plan.transfers()[i];
    if (ranks < 2 || t.from_type != t.to_type || bits(t.from_type) % 8 != 0) continue;
    if (box::whole(t.from.global_shape()).is_empty() || !is_chosen(t, choice)) continue;
    const auto found = groups_of(t, ranks);
    if (!found || (found->ranks < ranks && !choice.groups)) continue;
    collective_use use;
    if (found->ranks < ranks) {
      const auto known = std::find(made.groups.begin(), made.groups.end(), found->group_of);
      use.groups = static_cast<std::size_t>(known - made.groups.begin());
      if (known == made.groups.end()) {
        if (made.groups.size() == most_groups) continue;
        made.groups.push_back(found->group_of);
      }
    }
    use.transfer = i;
    use.kind = found->kind;
    use.op = t.from.reduction();
    use.ranks = found->ranks;
    if (!found->root_of.empty())
      use.root = found->root_of[static_cast<std::size_t>(found->group_of[static_cast<std::size_t>(rank)])];
    use.held = only_fragment(t.from, rank);
    use.wanted = *only_fragment(t.to, rank);
    use.slab_bytes = slab_bytes(plan, use);
    made.uses.push_back(std::move(use));
  }
  return made;
}

}  // namespace shardmesh
