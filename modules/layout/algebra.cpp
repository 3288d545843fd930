// SPDX-License-Identifier: Apache-2.0
// The algebra of distributions: embed, merge, rename_owners, deduplicate.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

// Visits every fragment, owner by owner, until `visit` returns false.
void each_fragment(const distribution& d, fragment_visitor visit) {
  bool going = true;
  d.for_each_owner([&](owner_id owner) {
    if (going) d.fragments_of(owner, [&](const fragment& f) { return going = visit(f); });
  });
}

std::string combination(const distribution& d) {
  if (d.reduction() != reduce_op::avg || d.divisor() == 0) return std::string(to_string(d.reduction()));
  return fmt::format("{} over {}", to_string(d.reduction()), d.divisor());
}

result<void> same_tensor(const distribution& a, const distribution& b) {
  if (a.global_shape() != b.global_shape())
    return fail(errc::shape_mismatch, "the distributions are of different tensors")
        .with_values(to_string(a.global_shape()), to_string(b.global_shape()));
  if (a.space() != b.space())
    return fail(errc::invalid_argument, "one distribution is over ranks, the other over items");
  if (a.reduction() != b.reduction() || a.divisor() != b.divisor())
    return fail(errc::mixed_partial, "the terms of the distributions combine differently")
        .with_values(combination(a), combination(b));
  return {};
}

// Returns `outer` with the first fragment for which `is_replaced` holds replaced by the fragments of `inner`.
result<distribution> embed_where(const distribution& outer, function_ref<bool(const fragment&)> is_replaced,
                                 const distribution& inner, const std::string& what) {
  if (outer.reduction() != reduce_op::none && inner.reduction() != reduce_op::none)
    return fail(errc::mixed_partial, "both the outer and the inner distribution have terms");
  const bool outer_has_terms = outer.reduction() != reduce_op::none;
  distribution_builder builder(outer.global_shape(), outer.space(),
                               outer_has_terms ? outer.reduction() : inner.reduction(),
                               outer_has_terms ? outer.divisor() : inner.divisor());
  std::optional<fragment> replaced;
  each_fragment(outer, [&](const fragment& f) {
    if (!replaced && is_replaced(f))
      replaced = f;
    else
      builder.add(f);
    return true;
  });
  if (!replaced) return fail(errc::out_of_bounds, fmt::format("the outer distribution has no fragment {}", what));
  if (replaced->where.sizes != inner.global_shape())
    return fail(errc::shape_mismatch, "the inner tensor does not fill the outer fragment")
        .with_values(to_string(replaced->where.sizes), to_string(inner.global_shape()))
        .with_rank(replaced->owner)
        .with_box(replaced->where);
  each_fragment(inner, [&](const fragment& f) {
    fragment moved = f;
    moved.where = shifted(f.where, replaced->where.offsets);
    if (outer_has_terms) moved.term = replaced->term;
    builder.add(moved);
    return true;
  });
  builder.at_least_owners(std::max(outer.owners(), inner.owners()));
  return builder.finish();
}

}  // namespace

result<distribution> embed(const distribution& outer, std::int64_t index, const distribution& inner) {
  std::int64_t at = 0;
  return embed_where(outer, [&](const fragment&) { return at++ == index; }, inner, std::to_string(index));
}

result<distribution> embed(const distribution& outer, owner_id owner, std::int32_t slot, const extents& offsets,
                           const distribution& inner) {
  const auto is_it = [&](const fragment& f) {
    return f.owner == owner && f.slot == slot && f.where.offsets == offsets;
  };
  return embed_where(outer, is_it, inner, fmt::format("of rank {} in slot {} at {}", owner, slot, to_string(offsets)));
}

result<distribution> merge(std::span<const distribution> parts) {
  if (parts.empty()) return fail(errc::invalid_argument, "there are no distributions to merge");
  distribution_builder builder(parts[0].global_shape(), parts[0].space(), parts[0].reduction(), parts[0].divisor());
  for (const distribution& part : parts) {
    SHARDMESH_TRY(same_tensor(parts[0], part));
    each_fragment(part, [&](const fragment& f) { return builder.add(f), true; });
    builder.at_least_owners(part.owners());
  }
  return builder.finish();
}

result<distribution> rename_owners(const distribution& d, std::span<const owner_id> names) {
  distribution_builder builder(d.global_shape(), d.space(), d.reduction(), d.divisor());
  std::optional<error> problem;
  each_fragment(d, [&](const fragment& f) {
    if (static_cast<std::size_t>(f.owner) >= names.size() || names[static_cast<std::size_t>(f.owner)] < 0) {
      problem = fail(errc::invalid_argument, "an owner has no new name").with_rank(f.owner).with_box(f.where);
      return false;
    }
    fragment renamed = f;
    renamed.owner = names[static_cast<std::size_t>(f.owner)];
    return builder.add(renamed), true;
  });
  if (problem) return *problem;
  return builder.finish();
}

result<distribution> deduplicate(const distribution& d) {
  std::vector<fragment> all;
  each_fragment(d, [&](const fragment& f) { return all.push_back(f), true; });
  std::vector<std::uint32_t> order(all.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto same = [&](std::uint32_t a, std::uint32_t b) {
    return all[a].where == all[b].where && all[a].term == all[b].term;
  };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (all[a].where != all[b].where) return all[a].where < all[b].where;
    return all[a].term != all[b].term ? all[a].term < all[b].term : a < b;
  });
  distribution_builder builder(d.global_shape(), d.space(), d.reduction(), d.divisor());
  builder.at_least_owners(d.owners());
  std::map<owner_id, std::int64_t> load;  // volume kept so far
  const auto keep = [&](std::uint32_t i) {
    load[all[i].owner] += all[i].where.volume();
    builder.add(all[i]);
  };
  const auto each_group = [&](auto&& visit) {
    for (std::size_t first = 0, last = 0; first < order.size(); first = last) {
      while (last < order.size() && same(order[first], order[last])) ++last;
      visit(first, last);
    }
  };
  each_group([&](std::size_t first, std::size_t last) {
    if (last - first == 1) keep(order[first]);
  });
  each_group([&](std::size_t first, std::size_t last) {
    if (last - first == 1) return;
    const auto lighter = [&](std::uint32_t a, std::uint32_t b) { return load[all[a].owner] < load[all[b].owner]; };
    keep(*std::min_element(order.begin() + static_cast<std::ptrdiff_t>(first),
                           order.begin() + static_cast<std::ptrdiff_t>(last), lighter));
  });
  return builder.finish();
}

}  // namespace shardmesh
