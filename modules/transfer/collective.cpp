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

namespace shardmesh {
namespace {

// The one fragment of a rank, if it has just one that is not empty.
std::optional<fragment> only_fragment(const distribution& d, owner_id rank) {
  std::optional<fragment> found;
  int count = 0;
  d.fragments_of(rank, [&](const fragment& f) {
    if (!f.where.is_empty()) found = f, ++count;
    return count < 2;
  });
  return count == 1 ? found : std::nullopt;
}

// Each rank holds the whole tensor as a term of its own.
bool is_partial_over_all(const distribution& d, std::int32_t ranks) {
  if (d.reduction() == reduce_op::none || d.owners() != ranks || d.terms() != ranks) return false;
  if (d.reduction() == reduce_op::avg && d.divisor() != 0 && d.divisor() != ranks) return false;
  const box whole = box::whole(d.global_shape());
  std::vector<bool> met(static_cast<std::size_t>(ranks));
  for (owner_id r = 0; r < ranks; ++r) {
    const auto f = only_fragment(d, r);
    if (!f || f->where != whole || f->term < 0 || f->term >= ranks || met[static_cast<std::size_t>(f->term)])
      return false;
    met[static_cast<std::size_t>(f->term)] = true;
  }
  return true;
}

// Rank r has the whole, or block r of the first dimension.
bool is_on_all(const distribution& d, std::int32_t ranks, bool in_blocks) {
  if (d.reduction() != reduce_op::none || d.terms() > 1 || d.owners() != ranks) return false;
  box wanted = box::whole(d.global_shape());
  if (in_blocks) {
    if (wanted.rank() == 0 || wanted.sizes[0] % ranks != 0) return false;
    wanted.sizes[0] /= ranks;
  }
  for (owner_id r = 0; r < ranks; ++r) {
    if (in_blocks) wanted.offsets[0] = r * wanted.sizes[0];
    const auto f = only_fragment(d, r);
    if (!f || f->where != wanted) return false;
  }
  return true;
}

// The one rank that has a tensor, whole.
std::optional<owner_id> only_owner(const distribution& d) {
  std::optional<owner_id> found;
  int count = 0;
  d.for_each_owner([&](owner_id owner) { found = owner, ++count; });
  if (count != 1 || d.reduction() != reduce_op::none) return std::nullopt;
  const auto f = only_fragment(d, *found);
  return f && f->where == box::whole(d.global_shape()) ? found : std::nullopt;
}

// Bytes of a block that one call is given: sums and messages take a few times as much, what arrives of all ranks at
// once as much for each. Alike on every rank, so it does not depend on where tensors lie.
std::int64_t slab_bytes(const transfer_plan& plan, const collective_use& use, std::int32_t ranks) {
  constexpr std::int64_t of_reductions = std::int64_t{4} << 20, of_copies = std::int64_t{32} << 20;
  const bool copies = use.kind == collective_kind::all_gather || use.kind == collective_kind::broadcast;
  const std::int64_t largest = copies ? of_copies : of_reductions, budget = plan.options().memory_bytes;
  const std::int64_t all = budget > 0 ? std::clamp<std::int64_t>(budget / 8, 1, largest) : largest;
  return std::max<std::int64_t>(all / std::max(use.sent(ranks), use.received(ranks)), 1);
}

// What every network's library combines in the dtype itself; the rest is combined here, from messages.
bool is_combined_by_networks(dtype type, reduce_op op) {
  constexpr dtype integers[] = {dtype::int8, dtype::uint8, dtype::int32, dtype::uint32, dtype::int64, dtype::uint64};
  constexpr dtype floats[] = {dtype::float16, dtype::bfloat16, dtype::float32, dtype::float64};
  const bool orders = op == reduce_op::sum || op == reduce_op::product || op == reduce_op::min || op == reduce_op::max;
  if (std::find(std::begin(integers), std::end(integers), type) != std::end(integers)) return orders;
  if (std::find(std::begin(floats), std::end(floats), type) != std::end(floats)) return orders || op == reduce_op::avg;
  return false;
}

std::optional<collective_use> use_of(const tensor_transfer& t, owner_id rank, std::int32_t ranks,
                                     const collective_choice& choice) {
  collective_use use;
  const bool replicates = is_on_all(t.to, ranks, false);
  if (t.from.reduction() != reduce_op::none) {
    const bool is_network = choice.gathers;
    if (is_network && !is_combined_by_networks(t.from_type, t.from.reduction())) return std::nullopt;
    if (!choice.reductions || !is_partial_over_all(t.from, ranks)) return std::nullopt;
    if (!replicates && !is_on_all(t.to, ranks, true)) return std::nullopt;
    use.kind = replicates ? collective_kind::all_reduce : collective_kind::reduce_scatter;
    use.op = t.from.reduction();
  } else {
    if (!choice.gathers || !replicates) return std::nullopt;
    if (const auto root = only_owner(t.from); root && *root < ranks) {
      use.kind = collective_kind::broadcast;
      use.root = *root;
    } else if (is_on_all(t.from, ranks, true)) {
      use.kind = collective_kind::all_gather;
    } else {
      return std::nullopt;
    }
  }
  use.held = only_fragment(t.from, rank);
  use.wanted = *only_fragment(t.to, rank);
  return use;
}

}  // namespace

std::vector<collective_use> collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks,
                                           const collective_choice& choice) {
  std::vector<collective_use> found;
  for (std::size_t i = 0; i < plan.transfers().size(); ++i) {
    const tensor_transfer& t = plan.transfers()[i];
    if (ranks < 2 || t.from_type != t.to_type || bits(t.from_type) % 8 != 0) continue;
    if (box::whole(t.from.global_shape()).is_empty()) continue;
    auto use = use_of(t, rank, ranks, choice);
    if (!use) continue;
    use->transfer = i;
    use->slab_bytes = slab_bytes(plan, *use, ranks);
    found.push_back(*std::move(use));
  }
  return found;
}

}  // namespace shardmesh
