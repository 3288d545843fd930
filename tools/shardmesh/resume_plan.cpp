// SPDX-License-Identifier: Apache-2.0
#include "resume_plan.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "opening.hpp"
#include "output_file.hpp"
#include "report.hpp"

#include <shardmesh/try.hpp>

import shardmesh;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.draw;
import shardmesh.layout;
import shardmesh.run;
import shardmesh.transfer;

namespace tool {
namespace {

using namespace shardmesh;

constexpr std::size_t most_rows = 64;  // of each table

struct load_plan {
  transfer_plan plan;  // from the files to the ranks
  plan_cost cost;
  std::size_t tensors = 0;
  std::int64_t stored_bytes = 0;       // of the tensors; ranks that load together read each byte once
  std::vector<std::int64_t> held;      // bytes, per rank
  std::vector<std::int64_t> files_of;  // the number of files that each rank needs
  std::vector<std::string> files;      // the senders of the plan
  std::vector<std::string> notes;
  std::vector<error> warnings, problems;  // of the checkpoint's reader
};

result<load_plan> plan_load(const checkpoint_reader& reader, const placed_mesh& to) {
  SHARDMESH_TRY(check_agreement(reader));
  const catalog& contents = reader.contents();
  load_plan made;
  made.warnings = reader.warnings();
  made.problems = reader.problems();
  SHARDMESH_TRY(placed_on_mesh placed, place_tensors(reader, to, split_rule::torch_chunk(), made.notes));
  std::vector<tensor_transfer> transfers;
  for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
    const tensor_entry& tensor = contents.tensors[i];
    SHARDMESH_TRY(distribution stored, contents.distribution_of(tensor));
    transfers.push_back({std::move(stored), std::move(placed.where[i]), tensor.type, tensor.type});
  }
  made.tensors = transfers.size();
  made.stored_bytes = contents.tensor_bytes();
  made.held = std::move(placed.held);
  made.files = contents.files;
  SHARDMESH_TRY(made.plan, plan(std::move(transfers)));
  made.cost = made.plan.cost();
  made.files_of.resize(made.held.size());
  for (const link_cost& one : made.cost.links)
    if (static_cast<std::size_t>(one.to) < made.files_of.size()) ++made.files_of[static_cast<std::size_t>(one.to)];
  for (const std::string& note : reader.notes()) made.notes.push_back(note);
  if (!contents.objects.empty())
    made.notes.push_back(
        fmt::format("{} not in the plan: only tensors are cut", counted(contents.objects.size(), "object")));
  return made;
}

std::string text_of(const load_plan& made, const run_step& step, const placed_mesh& to) {
  std::string text =
      fmt::format("{}: {} for the {} of the mesh {}\n", escaped(step.path.string()), counted(made.tensors, "tensor"),
                  counted(made.held.size(), "rank"), escaped(to_string(to.all.mesh)));
  text += fmt::format("the ranks receive {} (at least {}); together they read {} from the files\n",
                      human_bytes(made.cost.bytes_total), human_bytes(made.cost.lower_bound),
                      human_bytes(made.stored_bytes));
  text += fmt::format("{:>7} {:>11} {:>7}\n", "rank", "bytes", "files");
  for (std::size_t rank = 0; rank < std::min(made.held.size(), most_rows); ++rank)
    text += fmt::format("{:>7} {:>11} {:>7}\n", rank, human_bytes(made.held[rank]), made.files_of[rank]);
  if (made.held.size() > most_rows) text += fmt::format("and {}\n", counted(made.held.size() - most_rows, "more rank"));
  for (std::size_t file = 0; file < std::min(made.files.size(), most_rows); ++file)
    text += fmt::format("file {:>2}: {}\n", file, escaped(made.files[file]));
  if (made.files.size() > most_rows)
    text += fmt::format("and {}\n", counted(made.files.size() - most_rows, "more file"));
  return text + "from files to ranks:\n" + draw_plan(made.plan, {.color = isatty(STDOUT_FILENO) != 0});
}

void print_document(const load_plan& made, const latest_step& found, const placed_mesh& to) {
  json_writer out;
  out.begin_object()
      .member("ok", made.problems.empty())
      .member("step", found.step->step)
      .member("path", found.step->path.string())
      .key("skipped");
  write(out, found.skipped);
  write_mesh_side(out, "to", to);
  out.member("tensors", made.tensors)
      .member("stored_bytes", made.stored_bytes)
      .member("bytes_total", made.cost.bytes_total)
      .member("lower_bound", made.cost.lower_bound)
      .key("files")
      .list(made.files)
      .key("ranks")
      .begin_list();
  for (std::size_t rank = 0; rank < made.held.size(); ++rank)
    out.begin_object()
        .member("rank", rank)
        .member("bytes", made.held[rank])
        .member("files", made.files_of[rank])
        .end_object();
  out.end_list().key("links").begin_list();
  for (const link_cost& one : made.cost.links)
    out.begin_object().member("file", one.from).member("rank", one.to).member("bytes", one.size_bytes).end_object();
  out.end_list().key("notes").list(made.notes).key("warnings");
  write(out, made.warnings);
  write_problems(out, made.problems);
  out.end_object().finish();
}

bool has_partial(const std::vector<placement>& placements) {
  return std::any_of(placements.begin(), placements.end(),
                     [](const placement& one) { return one.kind == placement_kind::partial; });
}

std::vector<std::string> caption_of(const load_plan& made, const run_step& step, const placed_mesh& to) {
  std::vector<std::string> lines{"from the files of " + step.path.filename().string()};
  for (std::size_t file = 0; file < std::min(made.files.size(), most_rows); ++file)
    lines.push_back(fmt::format("sender {}: {}", file, made.files[file]));
  for (const std::string& line : placement_lines(to.all.mesh, to.all.placements)) lines.push_back("to " + line);
  return lines;
}

}  // namespace

result<placed_mesh> parse_resuming_mesh(const resume_plan_arguments& given) {
  SHARDMESH_TRY(device_mesh mesh, parse_mesh(given.mesh));
  std::vector<placement> placements(mesh.rank(), placement::replicate());
  if (!given.defaults.empty()) {
    SHARDMESH_TRY(placements, parse_placements(given.defaults));
  }
  SHARDMESH_TRY(std::vector<placement_rule> rules, parse_rules(given.places));
  bool is_partial = has_partial(placements);
  for (const placement_rule& rule : rules) is_partial = is_partial || has_partial(rule.placements);
  if (is_partial)
    return fail(errc::unsupported, "a checkpoint holds values, not the terms of a Partial")
        .with_hint("pass S(d) or R in --place and --default");
  placed_mesh made{{std::move(mesh), std::move(placements)}, std::move(rules)};
  made.has_implicit_default = given.defaults.empty();
  return made;
}

int print_resume_plan(const latest_step& found, const placed_mesh& to, const resume_plan_arguments& given,
                      const common_options& common) {
  const std::string path = found.step->path.string();
  works_on(path);
  auto picture = output_file::open("--svg", given.svg, given.force, {path});
  if (!picture) return report(picture.error());
  const auto reader = open_source(path, common);
  if (!reader) return report(reader.error());
  const auto made = plan_load(**reader, to);
  if (!made) return report(made.error());
  if (*picture)
    if (const int status = (*picture)->write(svg_plan(made->plan, caption_of(*made, *found.step, to))); status != done)
      return status;
  int status = done;
  if (given.json)
    print_document(*made, found, to);
  else if (!*picture && !print(text_of(*made, *found.step, to)))
    status = not_completed;
  for (const error& e : made->problems) status = std::max(status, report(e));
  for (const error& e : made->warnings) print_warning(e);
  if (!given.json) print_notes(made->notes);
  return status;
}

}  // namespace tool
