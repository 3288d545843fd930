// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.draw;

import :scene;

namespace shardmesh {
namespace {

// The edges of boxes along dimension d, and both ends of the tensor.
std::vector<std::int64_t> edges(const std::map<box, std::vector<owner_id>>& held, const extents& shape, std::size_t d) {
  std::vector<std::int64_t> all{0, shape[d]};
  for (const auto& [where, owners] : held) {
    all.push_back(where.offsets[d]);
    all.push_back(where.end(d));
  }
  return std::move(all) | ranges::actions::sort | ranges::actions::unique;
}

}  // namespace

scene make_scene(const distribution& d, std::size_t max_slices) {
  std::map<box, std::vector<owner_id>> held;
  d.for_each_owner([&](owner_id owner) {
    d.fragments_of(owner, [&](const fragment& f) {
      if (f.where.is_empty()) return true;
      auto& owners = held[f.where];
      if (owners.empty() || owners.back() != owner) owners.push_back(owner);
      return true;
    });
  });
  const extents& shape = d.global_shape();
  const std::size_t rank = shape.rank();
  scene made;
  made.outer_rank = rank > 2 ? rank - 2 : 0;
  made.rows = rank > 1 ? shape[rank - 2] : 1;
  made.columns = rank > 0 ? shape[rank - 1] : 1;

  // Slices: the product of the intervals between edges of the outer dimensions.
  std::vector<std::vector<std::int64_t>> outer_edges;
  made.slice_count = 1;
  for (std::size_t o = 0; o < made.outer_rank; ++o) {
    outer_edges.push_back(edges(held, shape, o));
    const std::int64_t intervals = static_cast<std::int64_t>(outer_edges.back().size()) - 1;
    made.slice_count = checked_multiply(made.slice_count, intervals).value_or(INT64_MAX);
  }
  const auto drawn = std::min<std::int64_t>(made.slice_count, static_cast<std::int64_t>(max_slices));
  for (std::int64_t s = 0; s < drawn; ++s) {
    slice one{{extents::filled(made.outer_rank, 0), extents::filled(made.outer_rank, 0)}, {}};
    std::int64_t rest = s;
    for (std::size_t o = made.outer_rank; o-- > 0;) {
      const auto& cuts = outer_edges[o];
      const auto at = static_cast<std::size_t>(rest % (static_cast<std::int64_t>(cuts.size()) - 1));
      rest /= static_cast<std::int64_t>(cuts.size()) - 1;
      one.outer.offsets[o] = cuts[at];
      one.outer.sizes[o] = cuts[at + 1] - cuts[at];
    }
    for (const auto& [where, owners] : held) {
      bool here = true;
      for (std::size_t o = 0; o < made.outer_rank && here; ++o)
        here = where.offsets[o] <= one.outer.offsets[o] && where.end(o) >= one.outer.end(o);
      if (!here) continue;
      tile t;
      t.owners = owners;
      if (rank > 1) t.row = where.offsets[rank - 2], t.rows = where.sizes[rank - 2];
      if (rank > 0) t.column = where.offsets[rank - 1], t.columns = where.sizes[rank - 1];
      one.tiles.push_back(std::move(t));
    }
    made.slices.push_back(std::move(one));
  }
  return made;
}

std::string owner_label(const std::vector<owner_id>& owners, std::size_t most) {
  if (owners.empty()) return ".";
  std::string text, fitting = "..";  // `fitting`: the longest start of it that leaves room for ".."
  for (std::size_t first = 0, last = 0; first < owners.size(); first = last) {
    while (last < owners.size() && owners[last] == owners[first] + static_cast<owner_id>(last - first)) ++last;
    const auto add = [&](std::string_view separator, owner_id owner) {
      text += separator;
      text += std::to_string(owner);
      if (text.size() + 2 <= most) fitting = text + "..";
    };
    add(first == 0 ? "" : ",", owners[first]);
    if (last - first > 1) add(last - first > 2 ? "-" : ",", owners[last - 1]);
    if (text.size() > most) return fitting;
  }
  return text;
}

std::map<std::pair<owner_id, owner_id>, std::int64_t> traffic_of(const transfer_plan& plan) {
  std::map<std::pair<owner_id, owner_id>, std::int64_t> traffic;
  owner_id owners = 0;
  owner_space space = owner_space::ranks;
  for (const tensor_transfer& t : plan.transfers()) {
    owners = std::max(owners, t.from.owners());
    space = t.from.space();
  }
  for (owner_id sender = 0; sender < owners; ++sender)
    for (const peer_traffic& sent : plan.for_owner(sender, space).sends())
      traffic[{sender, sent.peer}] += sent.size_bytes;
  return traffic;
}

}  // namespace shardmesh
