// SPDX-License-Identifier: Apache-2.0
#include "plan_json.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "layout_json.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.transfer;

namespace tool {
using namespace shardmesh;

namespace {

bool is_copy(const step& s) {
  return (s.kind == step_kind::copy || s.kind == step_kind::accumulate) && s.from.side != buffer_side::destination;
}

// {"mesh":[2,2],"mesh_names":["dp","tp"],"placements":["S(0)","R"]}
void write_side(json_writer& out, std::string_view name, const plan_side& side) {
  out.key(name).begin_object();
  write_mesh(out, side.mesh, side.placements);
  out.end_object();
}

void write_copies(json_writer& out, const transfer_plan& p) {
  out.key("copies").begin_list();
  for (owner_id rank = 0; rank < ranks_of(p); ++rank) {
    const rank_plan mine = p.for_owner(rank);
    for (std::size_t i = 0; i < mine.steps(0).size(); ++i) {
      const step s = mine.steps(0)[i];
      if (s.from.owner != rank || !is_copy(s)) continue;
      out.begin_object().member("from", s.from.owner).member("to", s.to.owner);
      write_box(out, s.where);
      out.end_object();
    }
  }
  out.end_list();
}

}  // namespace

owner_id ranks_of(const transfer_plan& p) {
  return std::max(p.transfers()[0].from.owners(), p.transfers()[0].to.owners());
}

void write_document(json_writer& out, const transfer_plan& p, const plan_side& from, const plan_side& to) {
  const tensor_transfer& moved = p.transfers()[0];
  const owner_id ranks = ranks_of(p);
  out.begin_object().key("shape").list(moved.from.global_shape()).member("dtype", name(moved.from_type));
  write_side(out, "from", from);
  write_side(out, "to", to);
  out.member("bytes_total", p.bytes_total())
      .member("bytes_moved", p.bytes_moved())
      .member("lower_bound", p.lower_bound())
      .key("peak_bytes")
      .begin_object();
  for (owner_id rank = 0; rank < ranks; ++rank) out.member(std::to_string(rank), p.for_owner(rank).peak_bytes());
  out.end_object().key("links").begin_list();
  for (owner_id rank = 0; rank < ranks; ++rank)
    for (const peer_traffic& sent : p.for_owner(rank).sends())
      out.begin_object().member("from", rank).member("to", sent.peer).member("bytes", sent.size_bytes).end_object();
  out.end_list();
  write_copies(out, p);
  out.end_object().finish();
}

}  // namespace tool
