// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
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

// Rank r wants the whole, or block r of the first dimension.
bool is_wanted_by_all(const distribution& d, std::int32_t ranks, bool in_blocks) {
  if (d.reduction() != reduce_op::none || d.owners() != ranks) return false;
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

}  // namespace

std::vector<collective_use> collectives_in(const transfer_plan& plan, owner_id rank, std::int32_t ranks) {
  std::vector<collective_use> found;
  for (std::size_t i = 0; i < plan.transfers().size(); ++i) {
    const tensor_transfer& t = plan.transfers()[i];
    if (ranks < 2 || t.from_type != t.to_type || bits(t.from_type) % 8 != 0) continue;
    if (box::whole(t.from.global_shape()).is_empty() || !is_partial_over_all(t.from, ranks)) continue;
    const bool replicates = is_wanted_by_all(t.to, ranks, false);
    if (!replicates && !is_wanted_by_all(t.to, ranks, true)) continue;
    found.push_back({i, !replicates, t.from.reduction(), *only_fragment(t.from, rank), *only_fragment(t.to, rank)});
  }
  return found;
}

std::int64_t collective_bytes(const transfer_plan& plan) {
  constexpr std::int64_t largest = std::int64_t{4} << 20;
  const std::int64_t budget = plan.options().memory_bytes;
  return budget > 0 ? std::clamp<std::int64_t>(budget / 8, 1, largest) : largest;
}

}  // namespace shardmesh
