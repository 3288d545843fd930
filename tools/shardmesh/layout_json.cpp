// SPDX-License-Identifier: Apache-2.0
#include "layout_json.hpp"

#include <cstdint>
#include <span>
#include <vector>

#include "report.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.layout;

namespace tool {
using namespace shardmesh;

namespace {

// Writes null for elements that fill no whole number of bytes, or more bytes than 64 bits count.
void write_bytes(json_writer& out, dtype type, const extents& sizes) {
  out.key("bytes");
  if (const auto bytes = size_bytes(type, numel(sizes)))
    out.value(*bytes);
  else
    out.null();
}

// Writes at most `most` boxes; returns how many it wrote.
std::int64_t write_rank(json_writer& out, const layout& l, dtype type, std::int32_t rank, std::int64_t most) {
  out.begin_object().member("rank", rank).key("coordinate").list(*l.mesh().coordinate_of(rank));
  out.key("local_shape").list(l.local_shape(rank));
  write_bytes(out, type, l.local_shape(rank));
  out.key("boxes").begin_list();
  const std::vector<placed_box> held = l.boxes(rank);
  std::int64_t written = 0;
  for (const placed_box& b : held) {
    if (written == most) break;
    out.begin_object();
    write_box(out, b.where);
    out.end_object();
    ++written;
  }
  out.end_list();
  const std::int64_t more = static_cast<std::int64_t>(held.size()) - written;
  if (more > 0) out.member("more_boxes", more);
  out.end_object();
  return written;
}

}  // namespace

void write_mesh(json_writer& out, const device_mesh& mesh, std::span<const placement> placements) {
  out.key("mesh").list(mesh.sizes()).key("mesh_names").list(mesh.names()).key("placements").begin_list();
  for (const placement& one : placements) out.value(to_string(one));
  out.end_list();
}

void write_document(json_writer& out, const layout& l, dtype type, const layout_limits& most) {
  out.begin_object().key("shape").list(l.shape()).member("dtype", name(type));
  write_bytes(out, type, l.shape());
  write_mesh(out, l.mesh(), l.placements());
  out.key("ranks").begin_list();
  std::int64_t ranks = 0;
  for (std::int64_t boxes = 0; ranks < l.mesh().size() && ranks < most.ranks && boxes < most.boxes; ++ranks)
    boxes += write_rank(out, l, type, l.mesh().rank_of_position(ranks), most.boxes - boxes);
  out.end_list();
  if (ranks < l.mesh().size()) out.member("more_ranks", l.mesh().size() - ranks);
  out.end_object().finish();
}

}  // namespace tool
