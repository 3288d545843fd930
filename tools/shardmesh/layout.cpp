// SPDX-License-Identifier: Apache-2.0
// `shardmesh layout`: shows the boxes of one tensor that each rank holds.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "element_type.hpp"
#include "json_writer.hpp"
#include "layout_json.hpp"
#include "output_file.hpp"
#include "page.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.draw;

namespace tool {
namespace {

struct layout_arguments {
  std::string shape, mesh, place, rule = "torch_chunk", dtype_name = "float32", svg, html;
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

int print_json(const shardmesh::layout& l, shardmesh::dtype type) {
  json_writer out;
  write_document(out, l, type);
  return done;
}

// The page holds the document that --json prints, or the beginning of a document that is too large for a browser.
int print_page(const shardmesh::layout& l, shardmesh::dtype type, output_file& destination) {
  std::string document;
  json_writer out([&](const std::string& text) { document += text; });
  write_document(out, l, type, {.ranks = 65'536, .boxes = 65'536});
  const std::string title = fmt::format("{} {}", shardmesh::to_string(type), shardmesh::to_string(l));
  return destination.write(make_page(
      title, {"elements.js", "page_state.js", "mesh.js", "table.js", "bars.js", "boxes.js", "layout.js"}, document));
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
  const auto type = element_type(a.dtype_name);
  if (!type) return refuse(type.error());
  const auto d = shardmesh::distribute(*l);
  if (!d) return refuse(d.error());
  auto picture = output_file::open("--svg", a.svg, a.force), page = output_file::open("--html", a.html, a.force);
  if (!picture) return report(picture.error());
  if (!page) return report(page.error());
  if (*picture) {
    const std::vector<std::string> labels = shardmesh::placement_lines(l->mesh(), l->placements());
    if (const int status = (*picture)->write(shardmesh::svg_layout(*d, labels)); status != done) return status;
  }
  if (*page)
    if (const int status = print_page(*l, *type, **page); status != done) return status;
  if (a.json) return print_json(*l, *type);
  return *picture || *page ? done : print_text(*l, *d);
}

}  // namespace

void add_layout(CLI::App& app, invocation& call) {
  auto a = std::make_shared<layout_arguments>();
  CLI::App* command = app.add_subcommand("layout", "Show which rank holds which part of a tensor");
  command->footer(
      "shardmesh layout --shape 10,7 --mesh 2,3 --place 'S(0),S(1)'\n"
      "shardmesh layout --shape 9 --mesh dp=2,tp=2 --place 'R,S(0)' --json\n"
      "shardmesh layout --shape 96 --mesh 8 --place 'SG(0,64:16:16)' --html qkv.html");
  command->add_option("--shape", a->shape, "Sizes of the whole tensor, such as 10,7; [] for a scalar")
      ->type_name("SHAPE")
      ->required();
  command->add_option("--mesh", a->mesh, "Sizes of the mesh, such as 2,3 or dp=2,tp=3")->type_name("MESH")->required();
  command->add_option("--place", a->place, "One placement per mesh dimension: S(d), SS(d,k), SG(d,n:n:n), R, or P(op)")
      ->type_name("PLACEMENTS")
      ->required();
  command
      ->add_option("--rule", a->rule, "Rule that cuts a dimension: torch_chunk, balanced, sizes:3,3,4, or weights:1,2")
      ->type_name("RULE")
      ->capture_default_str();
  command->add_option("--dtype", a->dtype_name, "Type of the elements, for the bytes of --json and --html")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print one JSON document");
  command->add_option("--svg", a->svg, "Write a picture to FILE")->type_name("FILE")->check(some_path());
  command->add_option("--html", a->html, "Write a page for a browser to FILE; it needs no network")
      ->type_name("FILE")
      ->check(some_path());
  add_force_option(*command, a->force, "--svg and --html");
  command->callback([a, &call] { call.status = run_layout(*a); });
}

}  // namespace tool
