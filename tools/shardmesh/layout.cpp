// SPDX-License-Identifier: Apache-2.0
// `shardmesh layout`: shows the boxes of one tensor that each rank holds.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "output_file.hpp"
#include "report.hpp"
import shardmesh;

namespace tool {
namespace {

struct layout_arguments {
  std::string shape, mesh, place, rule = "torch_chunk", svg;
  bool json = false, force = false;
};

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

void write_rank(json_writer& out, const shardmesh::layout& l, std::int32_t rank) {
  out.begin_object().member("rank", rank).key("coordinate").list(*l.mesh().coordinate_of(rank));
  out.key("local_shape").list(l.local_shape(rank)).key("boxes").begin_list();
  for (const shardmesh::placed_box& b : l.boxes(rank)) {
    out.begin_object();
    write_box(out, b.where);
    out.end_object();
  }
  out.end_list().end_object();
}

// Writes the document piece by piece: a mesh can have a million ranks.
int print_json(const shardmesh::layout& l) {
  json_writer out;
  out.begin_object().key("shape").list(l.shape()).key("mesh").list(l.mesh().sizes());
  out.key("placements").begin_list();
  for (const shardmesh::placement& p : l.placements()) out.value(shardmesh::to_string(p));
  out.end_list().key("ranks").begin_list();
  for (std::int64_t i = 0; i < l.mesh().size(); ++i) write_rank(out, l, l.mesh().rank_of_position(i));
  out.end_list().end_object().finish();
  return done;
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
  if (l.mesh().size() > listed_ranks)
    text += fmt::format("and {}\n", counted(l.mesh().size() - listed_ranks, "more rank"));
  return print(text) ? done : not_completed;
}

int run_layout(const layout_arguments& a) {
  const auto l = make_layout(a);
  if (!l) return refuse(l.error());
  const auto d = shardmesh::distribute(*l);
  if (!d) return refuse(d.error());
  if (!a.svg.empty()) {
    auto picture = output_file::open(a.svg, a.force);
    if (!picture) return report(picture.error());
    if (const int status = picture->write(shardmesh::svg_layout(*d)); status != done) return status;
  }
  if (a.json) return print_json(*l);
  return a.svg.empty() ? print_text(*l, *d) : done;
}

}  // namespace

void add_layout(CLI::App& app, invocation& call) {
  auto a = std::make_shared<layout_arguments>();
  CLI::App* command = app.add_subcommand("layout", "Show which rank holds which part of a tensor");
  command->footer(
      "shardmesh layout --shape 10,7 --mesh 2,3 --place 'S(0),S(1)'\n"
      "shardmesh layout --shape 9 --mesh dp=2,tp=2 --place 'R,S(0)' --json");
  command->add_option("--shape", a->shape, "Sizes of the whole tensor, such as 10,7; [] for a scalar")
      ->type_name("SHAPE")
      ->required();
  command->add_option("--mesh", a->mesh, "Sizes of the mesh, such as 2,3 or dp=2,tp=3")->type_name("MESH")->required();
  command->add_option("--place", a->place, "One placement per mesh dimension: S(d), SS(d,k), R, or P(op)")
      ->type_name("PLACEMENTS")
      ->required();
  command->add_option("--rule", a->rule, "How lengths are cut: torch_chunk, balanced, sizes:3,3,4, or weights:1,2")
      ->type_name("RULE")
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print one JSON document");
  command->add_option("--svg", a->svg, "Write a picture to FILE")->type_name("FILE")->check(some_path());
  add_force_option(*command, a->force, "--svg");
  command->callback([a, &call] { call.status = run_layout(*a); });
}

}  // namespace tool
