// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
module shardmesh.transfer;

import :group_check;

namespace shardmesh {
namespace {

// Checks that the group has every rank that holds something.
result<void> check_owners(const distribution& d, std::int32_t size, const char* side) {
  if (d.space() != owner_space::ranks)
    return fail(errc::unsupported, fmt::format("the {} is held by items, not by ranks", side));
  if (d.owners() <= size) return {};
  std::optional<std::pair<owner_id, box>> outside;
  d.for_each_owner([&](owner_id owner) {
    if (owner < size || outside) return;
    d.fragments_of(owner, [&](const fragment& f) {
      if (!f.where.is_empty()) outside.emplace(owner, f.where);
      return !outside;
    });
  });
  if (!outside) return {};
  return fail(errc::invalid_argument, fmt::format("the {} is held by a rank that is not in the group", side))
      .with_rank(outside->first)
      .with_box(outside->second)
      .with_values(fmt::format("ranks 0 to {}", size - 1), fmt::format("rank {}", outside->first));
}

// Finds reductions that the kernels lack, before anything moves.
result<void> check_reductions(const tensor_transfer& t) {
  const auto undefined = [](dtype type, reduce_op op) {
    return fail(errc::unsupported, fmt::format("{} of {} is not defined", to_string(op), name(type)));
  };
  if (t.from.reduction() != reduce_op::none && !is_combinable(accumulation_type(t.from_type), t.from.reduction()))
    return undefined(t.from_type, t.from.reduction());
  if (t.to.reduction() != reduce_op::none && !is_combinable(t.to_type, t.to.reduction()))
    return undefined(t.to_type, t.to.reduction());
  return {};
}

}  // namespace

result<void> check_transfers(const transfer_plan& plan, std::int32_t size, std::span<const std::string> names) {
  for (std::size_t t = 0; t < names.size(); ++t) {
    const tensor_transfer& one = plan.transfers()[t];
    auto done = check_owners(one.from, size, "source");
    if (done) done = check_owners(one.to, size, "destination");
    if (done) done = check_reductions(one);
    if (!done) return std::move(done).error().with_key(names[t]);
  }
  return {};
}

}  // namespace shardmesh
