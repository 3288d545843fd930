// SPDX-License-Identifier: Apache-2.0
#include "plan_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

import shardmesh;

namespace tool {
using namespace shardmesh;

namespace {

bool is_copy(const step& s) {
  return (s.kind == step_kind::copy || s.kind == step_kind::accumulate) && s.from.side != buffer_side::destination;
}

// {"mesh":[2,2],"placements":["S(0)","R"]}
void write_side(out_buffer& out, std::string_view name, const plan_side& side) {
  std::string placements;
  for (const placement& one : side.placements)
    placements += (placements.empty() ? "" : ",") + json_quoted(to_string(one));
  const auto& sizes = side.mesh.sizes();
  out.print(R"("{}":{{"mesh":[{}],"placements":[{}]}},)", name, fmt::join(sizes.begin(), sizes.end(), ","), placements);
}

}  // namespace

owner_id ranks_of(const transfer_plan& p) {
  return std::max(p.transfers()[0].from.owners(), p.transfers()[0].to.owners());
}

void write_document(out_buffer& out, const transfer_plan& p, const plan_side& from, const plan_side& to) {
  const tensor_transfer& moved = p.transfers()[0];
  const extents& shape = moved.from.global_shape();
  out.print(R"({{"shape":[{}],"dtype":"{}",)", fmt::join(shape.begin(), shape.end(), ","), name(moved.from_type));
  write_side(out, "from", from);
  write_side(out, "to", to);
  out.print(R"("bytes_total":{},"bytes_moved":{},"lower_bound":{},"peak_bytes":{{)", p.bytes_total(), p.bytes_moved(),
            p.lower_bound());
  const owner_id ranks = ranks_of(p);
  for (owner_id rank = 0; rank < ranks; ++rank)
    out.print(R"({}"{}":{})", rank == 0 ? "" : ",", rank, p.for_owner(rank).peak_bytes());
  out.print(R"(}},"links":[)");
  std::string_view separator;
  for (owner_id rank = 0; rank < ranks; ++rank)
    for (const peer_traffic& sent : p.for_owner(rank).sends()) {
      out.print(R"({}{{"from":{},"to":{},"bytes":{}}})", separator, rank, sent.peer, sent.size_bytes);
      separator = ",";
    }
  out.print(R"(],"copies":[)");
  separator = "";
  for (owner_id rank = 0; rank < ranks; ++rank) {
    const rank_plan mine = p.for_owner(rank);
    for (std::size_t i = 0; i < mine.steps(0).size(); ++i) {
      const step s = mine.steps(0)[i];
      if (s.from.owner != rank || !is_copy(s)) continue;
      out.print(R"({}{{"from":{},"to":{},"offsets":[{}],"sizes":[{}]}})", separator, s.from.owner, s.to.owner,
                fmt::join(s.where.offsets.begin(), s.where.offsets.end(), ","),
                fmt::join(s.where.sizes.begin(), s.where.sizes.end(), ","));
      separator = ",";
    }
  }
  out.print("]}}\n");
  out.flush();
}

}  // namespace tool
