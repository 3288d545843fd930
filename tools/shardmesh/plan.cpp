// SPDX-License-Identifier: Apache-2.0
// `shardmesh plan`: who sends what to whom when a tensor changes its layout.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "report.hpp"
import shardmesh;

namespace tool {
namespace {

using namespace shardmesh;

struct plan_arguments {
  std::string shape, from_mesh, from, to_mesh, to, rule = "torch_chunk", dtype_name = "float32", svg;
  bool json = false;
};

result<distribution> side(const extents& shape, const std::string& mesh_text, const std::string& place,
                          const split_rule& rule) {
  auto mesh = parse_mesh(mesh_text);
  if (!mesh) return std::move(mesh).error();
  auto placements = parse_placements(place);
  if (!placements) return std::move(placements).error();
  auto l = layout::make(*mesh, *placements, shape, rule);
  if (!l) return std::move(l).error();
  return distribute(*l);
}

result<transfer_plan> make_plan(const plan_arguments& a) {
  auto shape = parse_shape(a.shape);
  if (!shape) return std::move(shape).error();
  auto rule = parse_split_rule(a.rule);
  if (!rule) return std::move(rule).error();
  const auto type = parse_dtype(a.dtype_name);
  if (!type)
    return fail(errc::invalid_argument, "'" + a.dtype_name + "' is not a dtype")
        .with_hint("dtypes have PyTorch's names, such as bfloat16");
  auto from = side(*shape, a.from_mesh, a.from, *rule);
  if (!from) return std::move(from).error();
  auto to = side(*shape, a.to_mesh, a.to, *rule);
  if (!to) return std::move(to).error();
  return plan({{*from, *to, *type, *type}});
}

owner_id ranks_of(const transfer_plan& p) {
  return std::max(p.transfers()[0].from.owners(), p.transfers()[0].to.owners());
}

bool is_copy(const step& s) {
  return (s.kind == step_kind::copy || s.kind == step_kind::accumulate) && s.from.side != buffer_side::destination;
}

int print_json(const transfer_plan& p) {
  std::string text = fmt::format("{{\"bytes_total\":{},\"bytes_moved\":{},\"lower_bound\":{},\"peak_bytes\":{{",
                                 p.bytes_total(), p.bytes_moved(), p.lower_bound());
  for (owner_id rank = 0; rank < ranks_of(p); ++rank)
    text += fmt::format("{}\"{}\":{}", rank == 0 ? "" : ",", rank, p.for_owner(rank).peak_bytes());
  text += "},\"copies\":[";
  bool first = true;
  for (owner_id rank = 0; rank < ranks_of(p); ++rank) {
    const rank_plan mine = p.for_owner(rank);
    for (std::size_t i = 0; i < mine.steps(0).size(); ++i) {
      const step s = mine.steps(0)[i];
      if (s.from.owner != rank || !is_copy(s)) continue;
      text += fmt::format("{}{{\"from\":{},\"to\":{},\"offsets\":[{}],\"sizes\":[{}]}}", first ? "" : ",", s.from.owner,
                          s.to.owner, fmt::join(s.where.offsets.begin(), s.where.offsets.end(), ","),
                          fmt::join(s.where.sizes.begin(), s.where.sizes.end(), ","));
      first = false;
    }
    if (text.size() < (1U << 20)) continue;
    if (!print(std::exchange(text, {}))) return not_completed;
  }
  return print(text + "]}\n") ? done : not_completed;
}

int print_text(const transfer_plan& p) {
  std::int64_t peak = 0;
  for (owner_id rank = 0; rank < ranks_of(p); ++rank) peak = std::max(peak, p.for_owner(rank).peak_bytes());
  std::string text = fmt::format("{} move between ranks (at least {}), {} in all; at most {} of messages on a rank\n",
                                 human_bytes(p.bytes_moved()), human_bytes(p.lower_bound()),
                                 human_bytes(p.bytes_total()), human_bytes(peak));
  return print(text + draw_plan(p)) ? done : not_completed;
}

int run_plan(const plan_arguments& a) {
  const auto p = make_plan(a);
  if (!p) return refuse(p.error());
  if (!a.svg.empty() && !write_text_file(a.svg, svg_plan(*p))) return not_completed;
  if (a.json) return print_json(*p);
  return a.svg.empty() ? print_text(*p) : done;
}

}  // namespace

void add_plan(CLI::App& app, invocation& call) {
  auto a = std::make_shared<plan_arguments>();
  CLI::App* command =
      app.add_subcommand("plan", "Who sends what to whom when a tensor moves from one layout to another");
  command->add_option("--shape", a->shape, "Sizes of the whole tensor: 10,7; a scalar's is []")->required();
  command->add_option("--from-mesh", a->from_mesh, "Mesh it is on: 4 or dp=2,tp=2")->required();
  command->add_option("--from", a->from, "Its placements there: 'S(0)'")->required();
  command->add_option("--to-mesh", a->to_mesh, "Mesh it goes to; ranks of both meshes number the same processes")
      ->required();
  command->add_option("--to", a->to, "Its placements there: 'S(1),R'")->required();
  command->add_option("--dtype", a->dtype_name, "Element type")->capture_default_str();
  command->add_option("--rule", a->rule, "How lengths are cut: torch_chunk, balanced")->capture_default_str();
  command->add_flag("--json", a->json, "One JSON document on stdout");
  command->add_option("--svg", a->svg, "Write a picture to this file");
  command->callback([a, &call] { call.status = run_plan(*a); });
}

}  // namespace tool
