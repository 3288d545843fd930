// SPDX-License-Identifier: Apache-2.0
// `shardmesh plan`: shows the messages between ranks when a tensor, or each tensor of a checkpoint, changes its layout.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache_option.hpp"
#include "checkpoint_plan.hpp"
#include "command.hpp"
#include "console.hpp"
#include "element_type.hpp"
#include "json_writer.hpp"
#include "mapping_options.hpp"
#include "output_file.hpp"
#include "page.hpp"
#include "plan_json.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.core;
import shardmesh.draw;

namespace tool {
namespace {

using namespace shardmesh;

struct plan_arguments {
  std::string source, shape, from_mesh, from, to_mesh, to, rule = "torch_chunk", dtype_name = "float32", svg, html;
  std::vector<std::string> from_places, to_places;  // with `source`
  mapping_arguments mapping;
  bool has_dtype = false, has_cache = false, json = false, force = false;
};

struct sides {
  plan_side from, to;
};

result<plan_side> parse_side(const std::string& mesh_text, const std::string& place) {
  auto mesh = parse_mesh(mesh_text);
  if (!mesh) return std::move(mesh).error();
  auto placements = parse_placements(place);
  if (!placements) return std::move(placements).error();
  return plan_side{std::move(*mesh), std::move(*placements)};
}

result<sides> parse_sides(const plan_arguments& a) {
  auto from = parse_side(a.from_mesh, a.from);
  if (!from) return std::move(from).error();
  auto to = parse_side(a.to_mesh, a.to);
  if (!to) return std::move(to).error();
  return sides{std::move(*from), std::move(*to)};
}

result<distribution> placed(const extents& shape, const plan_side& side, const split_rule& rule) {
  auto l = layout::make(side.mesh, side.placements, shape, rule);
  if (!l) return std::move(l).error();
  return distribute(*l);
}

result<transfer_plan> make_plan(const plan_arguments& a, const sides& both) {
  auto shape = parse_shape(a.shape);
  if (!shape) return std::move(shape).error();
  auto rule = parse_split_rule(a.rule);
  if (!rule) return std::move(rule).error();
  const auto type = element_type(a.dtype_name);
  if (!type) return type.error();
  auto from = placed(*shape, both.from, *rule);
  if (!from) return std::move(from).error();
  auto to = placed(*shape, both.to, *rule);
  if (!to) return std::move(to).error();
  return plan({{*from, *to, *type, *type}});
}

int print_text(const transfer_plan& p) {
  std::int64_t peak = 0;
  for (owner_id rank = 0; rank < ranks_of(p); ++rank) peak = std::max(peak, p.for_owner(rank).peak_bytes());
  std::string text = fmt::format("{} move between ranks (at least {}), {} in all; at most {} of messages on a rank\n",
                                 human_bytes(p.bytes_moved()), human_bytes(p.lower_bound()),
                                 human_bytes(p.bytes_total()), human_bytes(peak));
  return print(text + draw_plan(p, {.color = isatty(STDOUT_FILENO) != 0})) ? done : not_completed;
}

// The labels of both meshes above the picture.
std::vector<std::string> caption_of(const sides& both) {
  std::vector<std::string> lines;
  for (const std::string& line : placement_lines(both.from.mesh, both.from.placements)) lines.push_back("from " + line);
  for (const std::string& line : placement_lines(both.to.mesh, both.to.placements)) lines.push_back("to " + line);
  return lines;
}

// The page holds the document that --json prints; both are made once.
int print_page(const transfer_plan& p, const plan_arguments& a, const sides& both, output_file& destination) {
  std::string document;
  json_writer out([&](const std::string& text) { document += text; });
  write_document(out, p, both.from, both.to);
  const std::string title = fmt::format("{} {}: {} to {}", a.dtype_name, a.shape, a.from, a.to);
  const std::string page = make_page(
      title, {"elements.js", "page_state.js", "mesh.js", "table.js", "bars.js", "boxes.js", "matrix.js", "plan.js"},
      document);
  if (a.json) print(std::move(document));
  return destination.write(page);
}

// Refuses options of the other form: a plan is that of one tensor, or that of a checkpoint.
result<void> check_form(const plan_arguments& a, const common_options& common) {
  if (a.source.empty() == a.shape.empty())
    return fail(errc::invalid_argument, "pass either --shape or the checkpoint CKPT");
  const auto refused = [](const std::string& option, const std::string& form) {
    return fail(errc::invalid_argument, fmt::format("{} is for the plan of {}", option, form))
        .with_hint("leave it out");
  };
  if (a.source.empty()) {
    if (!a.from_places.empty()) return refused("--from-place", "a checkpoint");
    if (!a.to_places.empty()) return refused("--to-place", "a checkpoint");
    if (a.mapping.is_given()) return refused("--map", "a checkpoint");
    if (common.rank) return refused("--rank", "a checkpoint");
    if (common.keys_at_ranks) return refused("--keys-at-ranks", "a checkpoint");
    if (a.has_cache) return refused("--cache", "a checkpoint");
    return {};
  }
  if (a.has_dtype) return refused("--dtype", "one tensor");
  if (!a.html.empty()) return refused("--html", "one tensor");
  return {};
}

result<checkpoint_plan_request> parse_request(const plan_arguments& a) {
  auto both = parse_sides(a);
  if (!both) return std::move(both).error();
  auto from_rules = parse_rules(a.from_places);
  if (!from_rules) return std::move(from_rules).error();
  auto to_rules = parse_rules(a.to_places);
  if (!to_rules) return std::move(to_rules).error();
  auto rule = parse_split_rule(a.rule);
  if (!rule) return std::move(rule).error();
  return checkpoint_plan_request{a.source,
                                 {std::move(both->from), *std::move(from_rules)},
                                 {std::move(both->to), *std::move(to_rules)},
                                 *std::move(rule),
                                 a.mapping};
}

int run_checkpoint_plan(const plan_arguments& a, const common_options& common) {
  set_failure_members("plan CKPT");
  works_on(a.source);
  const auto request = parse_request(a);
  if (!request) return refuse(request.error());
  const auto made = plan_checkpoint(*request, common);
  if (!made) return report(made.error());
  auto picture = output_file::open("--svg", a.svg, a.force, {a.source});
  if (!picture) return report(picture.error());
  if (*picture)
    if (const int status = (*picture)->write(svg_plan(made->plan, caption_of({request->from.all, request->to.all})));
        status != done)
      return status;
  int status = done;
  if (a.json) {
    json_writer out;
    write_document(out, *made, *request);
  } else if (!*picture && !print(text_of(*made, isatty(STDOUT_FILENO) != 0))) {
    status = not_completed;
  }
  for (const error& e : made->problems) status = std::max(status, report(e));
  for (const error& e : made->warnings) print_warning(e);
  if (!a.json) print_notes(made->notes);
  return status;
}

int run_plan(const plan_arguments& a, const common_options& common) {
  if (const auto form = check_form(a, common); !form) return refuse(form.error());
  if (!a.source.empty()) return run_checkpoint_plan(a, common);
  const auto both = parse_sides(a);
  if (!both) return refuse(both.error());
  const auto p = make_plan(a, *both);
  if (!p) return refuse(p.error());
  auto picture = output_file::open("--svg", a.svg, a.force), page = output_file::open("--html", a.html, a.force);
  if (!picture) return report(picture.error());
  if (!page) return report(page.error());
  if (*picture)
    if (const int status = (*picture)->write(svg_plan(*p, caption_of(*both))); status != done) return status;
  if (*page) return print_page(*p, a, *both, **page);
  if (!a.json) return *picture ? done : print_text(*p);
  json_writer out;
  write_document(out, *p, both->from, both->to);
  return done;
}

// The options of `inspect` and others (main.cpp) for folders whose ranks saved without collectives.
void add_ranks(CLI::App& command, common_options& into) {
  CLI::Option* const rank =
      command
          .add_option("--rank", into.rank,
                      "Read rank N's value of each key of CKPT for which the ranks saved different values")
          ->type_name("N")
          ->transform(whole_number(0, INT32_MAX));
  command
      .add_flag("--keys-at-ranks", into.keys_at_ranks,
                "Plan each rank's value of such a key as KEY@RANK (not with --rank)")
      ->excludes(rank);
}

}  // namespace

void add_plan(CLI::App& app, invocation& call) {
  auto a = std::make_shared<plan_arguments>();
  CLI::App* command = app.add_subcommand("plan",
                                         "Show which rank sends what to which other rank when a tensor, or each tensor "
                                         "of a checkpoint, changes its layout");
  command->footer(
      "shardmesh plan --shape 10,7 --from-mesh 4 --from 'S(0)' --to-mesh 4 --to R\n"
      "shardmesh plan --shape 8 --from-mesh 2 --from R --to-mesh 4 --to 'S(0)' --json\n"
      "shardmesh plan HF --map m.toml --from-mesh 4 --from R --to-mesh 2 --to 'S(0)'");
  command->add_option("CKPT", a->source, "Plan the move of all tensors of this checkpoint, instead of --shape")
      ->check(some_path());
  command->add_option("--shape", a->shape, "Sizes of the whole tensor, such as 10,7; [] for a scalar")
      ->type_name("SHAPE");
  command->add_option("--from-mesh", a->from_mesh, "Mesh that the tensor is on, such as 4 or dp=2,tp=2")
      ->type_name("MESH")
      ->required();
  command->add_option("--from", a->from, "Placements on that mesh, such as 'S(0)'")
      ->type_name("PLACEMENTS")
      ->required();
  command->add_option("--to-mesh", a->to_mesh, "Mesh that the tensor moves to; both meshes number the same processes")
      ->type_name("MESH")
      ->required();
  command->add_option("--to", a->to, "Placements on that mesh, such as 'S(1),R'")->type_name("PLACEMENTS")->required();
  const auto add_places = [&](const std::string& option, std::vector<std::string>& into, const std::string& side) {
    command
        ->add_option(
            option, into,
            "Placements " + side + " of the keys of CKPT that match RE; the first rule that matches a key decides")
        ->type_name("RE=S(0),R")
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  add_places("--from-place", a->from_places, "before the move");
  add_places("--to-place", a->to_places, "after the move, under the new names,");
  CLI::Option* dtype = command->add_option("--dtype", a->dtype_name, "With --shape: type of the elements")
                           ->type_name("NAME")
                           ->capture_default_str();
  command
      ->add_option("--rule", a->rule, "Rule that cuts a dimension: torch_chunk, balanced, sizes:3,3,4, or weights:1,2")
      ->type_name("RULE")
      ->capture_default_str();
  command->add_flag("--json", a->json, "Print one JSON document");
  command->add_option("--svg", a->svg, "Write a picture to FILE")->type_name("FILE")->check(some_path());
  command->add_option("--html", a->html, "Write a page for a browser to FILE; it needs no network")
      ->type_name("FILE")
      ->check(some_path());
  add_force_option(*command, a->force, "--svg and --html");
  add_mapping_options(*command, a->mapping, "CKPT");
  add_ranks(*command, call.common);
  add_cache_option(*command);
  const CLI::Option* const cache = command->get_option("--cache");
  command->callback([a, dtype, cache, &call] {
    a->has_dtype = dtype->count() > 0;
    a->has_cache = cache->count() > 0;
    call.status = run_plan(*a, call.common);
  });
}

}  // namespace tool
