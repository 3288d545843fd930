// SPDX-License-Identifier: Apache-2.0
// `shardmesh layout`: who holds what of one tensor.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

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

struct layout_arguments {
  std::string shape, mesh, place, rule = "torch_chunk", svg;
  bool json = false;
};

template <class Range>
std::string numbers(const Range& values) {
  return fmt::format("[{}]", fmt::join(values.begin(), values.end(), ","));
}

shardmesh::result<shardmesh::layout> make_layout(const layout_arguments& a) {
  auto shape = shardmesh::parse_shape(a.shape);
  if (!shape) return std::move(shape).error();
  auto mesh = shardmesh::parse_mesh(a.mesh);
  if (!mesh) return std::move(mesh).error();
  auto placements = shardmesh::parse_placements(a.place);
  if (!placements) return std::move(placements).error();
  auto rule = shardmesh::parse_split_rule(a.rule);
  if (!rule) return std::move(rule).error();
  return shardmesh::layout::make(*mesh, *placements, *shape, *rule);
}

std::string rank_json(const shardmesh::layout& l, std::int64_t position) {
  const std::int32_t rank = l.mesh().rank_of_position(position);
  std::string boxes;
  for (const shardmesh::placed_box& b : l.boxes(rank))
    boxes += fmt::format("{}{{\"offsets\":{},\"sizes\":{}}}", boxes.empty() ? "" : ",", numbers(b.where.offsets),
                         numbers(b.where.sizes));
  return fmt::format("{{\"rank\":{},\"coordinate\":{},\"local_shape\":{},\"boxes\":[{}]}}", rank,
                     numbers(*l.mesh().coordinate_of(rank)), numbers(l.local_shape(rank)), boxes);
}

// Written piece by piece: a mesh can have a million ranks.
int print_json(const shardmesh::layout& l) {
  std::string text =
      fmt::format("{{\"shape\":{},\"mesh\":{},\"placements\":[", numbers(l.shape()), numbers(l.mesh().sizes()));
  for (std::size_t m = 0; m < l.placements().size(); ++m)
    text += fmt::format("{}\"{}\"", m == 0 ? "" : ",", shardmesh::to_string(l.placements()[m]));
  text += "],\"ranks\":[";
  for (std::int64_t i = 0; i < l.mesh().size(); ++i) {
    if (i > 0) text += ",";
    text += rank_json(l, i);
    if (text.size() < (1U << 20)) continue;
    if (!print(std::exchange(text, {}))) return not_completed;
  }
  return print(text + "]}\n") ? done : not_completed;
}

int print_text(const shardmesh::layout& l, const shardmesh::distribution& d) {
  constexpr std::int64_t drawn_ranks = 4096, listed_ranks = 64;
  std::string text = shardmesh::to_string(l) + "\n";
  if (l.mesh().size() <= drawn_ranks) text += shardmesh::draw_layout(d, {.color = isatty(STDOUT_FILENO) != 0});
  for (std::int64_t i = 0; i < std::min(l.mesh().size(), listed_ranks); ++i) {
    const std::int32_t rank = l.mesh().rank_of_position(i);
    std::string held;
    for (const shardmesh::placed_box& b : l.boxes(rank)) held += " " + shardmesh::to_string(b.where);
    text += fmt::format("rank {}: {}{}\n", rank, shardmesh::to_string(l.local_shape(rank)),
                        held.empty() ? " nothing" : held);
  }
  if (l.mesh().size() > listed_ranks) text += fmt::format("and {} more ranks\n", l.mesh().size() - listed_ranks);
  return print(text) ? done : not_completed;
}

int run_layout(const layout_arguments& a) {
  const auto l = make_layout(a);
  if (!l) return refuse(l.error());
  const auto d = shardmesh::distribute(*l);
  if (!d) return refuse(d.error());
  if (!a.svg.empty() && !write_text_file(a.svg, shardmesh::svg_layout(*d))) return not_completed;
  if (a.json) return print_json(*l);
  return a.svg.empty() ? print_text(*l, *d) : done;
}

}  // namespace

void add_layout(CLI::App& app, invocation& call) {
  auto a = std::make_shared<layout_arguments>();
  CLI::App* command = app.add_subcommand("layout", "Who holds what of a tensor that is placed on a mesh");
  command->add_option("--shape", a->shape, "Sizes of the whole tensor: 10,7; a scalar's is []")->required();
  command->add_option("--mesh", a->mesh, "Sizes of the mesh: 2,3 or dp=2,tp=3")->required();
  command->add_option("--place", a->place, "One placement per mesh dimension: S(d), SS(d,k), R, P(op); 'S(0),R'")
      ->required();
  command->add_option("--rule", a->rule, "How lengths are cut: torch_chunk, balanced, sizes:3,3,4, weights:1,2")
      ->capture_default_str();
  command->add_flag("--json", a->json, "One JSON document on stdout");
  command->add_option("--svg", a->svg, "Write a picture to this file")->type_name("FILE")->check(some_path());
  command->callback([a, &call] { call.status = run_layout(*a); });
}

}  // namespace tool
