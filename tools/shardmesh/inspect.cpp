// SPDX-License-Identifier: Apache-2.0
// `shardmesh inspect`: lists the contents of a checkpoint.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/iota.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "inspect_json.hpp"
#include "inspect_pictures.hpp"
#include "inspect_summary.hpp"
#include "list_limit.hpp"
#include "opening.hpp"
#include "out_buffer.hpp"
#include "output_file.hpp"
#include "page.hpp"
#include "report.hpp"
#include "selection_options.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string path, html, svg;
  bool json = false, map = false, tree = false, force = false;
  list_limit limit;
  std::vector<std::string> keys;  // exactly these; empty: as `selection` decides
  selection_arguments selection;
};

// Returns the entries with exactly these keys; errc::missing_key if one is missing.
result<shown_entries> choose_keys(const checkpoint_reader& reader, const std::vector<std::string>& keys) {
  const catalog& contents = reader.contents();
  shown_entries shown;
  for (const std::string& key : keys) {
    if (const tensor_entry* const tensor = contents.find(key))
      shown.tensors.push_back(static_cast<std::size_t>(tensor - contents.tensors.data()));
    else if (const object_entry* const object = contents.find_object(key))
      shown.objects.push_back(static_cast<std::size_t>(object - contents.objects.data()));
    else
      return fail(errc::missing_key, "the checkpoint has no such entry")
          .with_file(reader.path().string())
          .with_key(key)
          .with_hint(did_you_mean(nearest_key(contents, key)));
  }
  return shown;
}

result<shown_entries> choose(const checkpoint_reader& reader, const arguments& given) {
  if (!given.keys.empty()) return choose_keys(reader, given.keys);
  const catalog& contents = reader.contents();
  shown_entries shown;
  if (given.selection.only.empty()) {
    const auto all_of = [](const auto& entries) {
      return ranges::views::iota(std::size_t{0}, entries.size()) | ranges::to<std::vector>();
    };
    return shown_entries{all_of(contents.tensors), all_of(contents.objects)};
  }
  const auto rules = given.selection.compile();
  if (!rules) return rules.error();
  std::vector<selectable> candidates;
  for (const tensor_entry& tensor : contents.tensors) candidates.push_back({tensor.key, tensor.type, true});
  for (const object_entry& object : contents.objects) candidates.push_back({object.key, dtype::undefined, false});
  const selection_result chosen = select_keys(candidates, *rules);
  if (!chosen.errors.empty()) return chosen.errors.front();
  for (const selected& one : chosen.kept)
    if (one.index < contents.tensors.size())
      shown.tensors.push_back(one.index);
    else
      shown.objects.push_back(one.index - contents.tensors.size());
  return shown;
}

// Returns an object's value. For an opaque object without a known value, returns only its type.
std::string shown_text(const object_value& value) {
  const bool is_type_alone = value.json == R"({"$other":)" + json_quoted(value.type) + "}" || value.json == "null";
  return value.kind.starts_with("opaque") && is_type_alone ? escaped(value.type) : object_text(value.json);
}

// Null means that the names were not searched for.
std::string names_text(const global_report* globals) {
  return globals == nullptr ? std::string() : globals_text(*globals);
}

int print_tree(const checkpoint_reader& reader, const shown_entries& shown, const arguments& given,
               const global_report* globals) {
  const auto made = tree_of(reader.contents(), shown);
  if (!made) return report(made.error());
  const draw_options options{.color = isatty(STDOUT_FILENO) != 0,
                             .max_columns = widest_tree,
                             .max_lines = given.limit.most(INT64_MAX) + 1};  // the root does not count
  out_buffer out;
  print_summary(out, reader, shown);
  out.print("{}{}", names_text(globals), draw_tree(made->tree, made->labels, options));
  out.flush();
  return done;
}

int print_list(checkpoint_reader& reader, const shown_entries& shown, const arguments& given,
               const global_report* globals) {
  const catalog& contents = reader.contents();
  out_buffer out;
  print_summary(out, reader, shown);
  out.print("{}", names_text(globals));
  const std::size_t all = shown.tensors.size() + shown.objects.size();
  const std::size_t limit = given.limit.most(all);
  std::size_t widest = 0, printed = 0;
  for (const std::size_t i : shown.tensors)
    widest = std::max(widest, std::min<std::size_t>(contents.tensors[i].key.size(), 60));
  int status = done;
  std::optional<error> said;  // a limit that was reached is reported once
  for (const std::size_t i : shown.tensors) {
    if (printed++ >= limit) break;
    const tensor_entry& tensor = contents.tensors[i];
    out.print("{:<{}}  {:<14} {:<18} {}{}\n", escaped(tensor.key), widest, type_text(contents, tensor),
              has_known_shape(tensor) ? to_string(tensor.shape) : "-", counted(tensor.chunk_count, "chunk"),
              tensor.opaque_type.empty()
                  ? ""
                  : fmt::format("  opaque-tensor {}{}{}", escaped(tensor.opaque_type),
                                tensor.opaque_kind.empty() ? "" : ": ", escaped(tensor.opaque_kind)));
    if (!given.map || !has_known_shape(tensor)) continue;
    const auto held = held_by_ranks(contents, tensor);
    if (!held)
      status = std::max(status, report(held.error()));
    else
      out.print("{}", draw_layout(*held, {.color = isatty(STDOUT_FILENO) != 0}));
  }
  for (const std::size_t i : shown.objects) {
    if (printed++ >= limit) break;
    auto value = shown_object(reader, i);
    if (!value) {
      if (said != value.error() && !is_said(reader, value.error())) status = std::max(status, report(value.error()));
      said = value.error();
      continue;
    }
    const std::int64_t hidden = contents.objects[i].hidden_tensors;
    out.print(
        "{:<{}}  {:<14} {}{}{}\n", escaped(contents.objects[i].key), widest, escaped(value->kind), shown_text(*value),
        value->tensors.empty() ? "" : fmt::format("  ({} inside)", counted(value->tensors.size(), "tensor")),
        hidden == 0
            ? ""
            : fmt::format("  ({} no name)", counted(hidden, "tensor inside that has", "tensors inside that have")));
  }
  if (limit < all) out.print("... and {} more\n", all - limit);
  out.flush();
  return status;
}

int report_nothing(const error& cause, bool json, const global_report* globals) {
  if (json) {
    json_writer out;
    write_document_of_nothing(out, cause, globals);
  } else {
    print(names_text(globals));
  }
  return report(cause);
}

// The page holds the document that --json prints; both are made once.
int print_page(checkpoint_reader& reader, const shown_entries& shown, const arguments& given,
               const global_report* globals, output_file& destination) {
  std::string document;
  json_writer out([&](const std::string& text) { document += text; });
  const int status = write_document(out, reader, shown, globals);
  const std::string page = make_page(
      printable_url(given.path),
      {"elements.js", "page_state.js", "checkpoint.js", "table.js", "treemap.js", "bars.js", "boxes.js", "inspect.js"},
      document);
  if (given.json) print(std::move(document));
  return std::max(status, destination.write(page));
}

int run(const arguments& given, const common_options& common) {
  works_on(given.path);
  auto picture = output_file::open("--svg", given.svg, given.force, {given.path});
  if (!picture) return report(picture.error());
  auto page = output_file::open("--html", given.html, given.force, {given.path});
  if (!page) return report(page.error());
  const read_limits limits = read_limits{}.times(common.limit_factor);
  auto reader = open_source(given.path, common, given.keys);
  if (reader && !given.keys.empty() && !choose(**reader, given))  // only the full list knows similar keys
    reader = open_source(given.path, common);
  // Names are searched for even in an unreadable checkpoint: Python runs a damaged pickle up to its defect. They are
  // not searched for if the user asked only about some keys.
  std::optional<global_report> found;
  const bool is_late = !reader && detail::is_limit_error(reader.error());
  if (given.keys.empty() && !is_late)
    found = find_globals(reader ? (*reader)->path() : std::filesystem::path(given.path),
                         reader ? reader->get() : nullptr, {.threads = common.threads, .limits = limits});
  const global_report* const globals = found ? &*found : nullptr;
  if (!reader) return report_nothing(reader.error(), given.json, globals);
  const auto shown = choose(**reader, given);
  if (!shown) return report_nothing(shown.error(), given.json, globals);
  int status = done;
  if (*picture)
    status = given.tree ? write_tree((*reader)->contents(), *shown, **picture, given.limit)
                        : write_maps((*reader)->contents(), *shown, **picture, given.limit);
  if (*page) {
    status = std::max(status, print_page(**reader, *shown, given, globals, **page));
  } else if (given.json) {
    json_writer out;
    status = std::max(status, write_document(out, **reader, *shown, globals));
  } else if (!given.svg.empty()) {
    // The picture is the answer, as with layout and plan.
  } else if (given.tree) {
    status = print_tree(**reader, *shown, given, globals);
  } else {
    status = print_list(**reader, *shown, given, globals);
  }
  for (const error& e : found ? found->problems : std::vector<error>{}) status = std::max(status, report(e));
  print_more_problems(found ? found->more_problems : 0);
  for (const error& e : (*reader)->problems()) status = std::max(status, report(e));
  for (const error& e : (*reader)->warnings()) print_warning(e);
  print_notes((*reader)->notes());
  return status;
}

}  // namespace

void add_inspect(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("inspect",
                         "Show the contents of a checkpoint. Prints a summary, the names in pickles that are not "
                         "plain data, and a list of tensors and objects. Runs no code from the checkpoint, so that "
                         "untrusted files can be inspected");
  command->footer(
      "shardmesh inspect CKPT --limit 20\n"
      "shardmesh inspect CKPT --map --only 'model\\..*'\n"
      "shardmesh inspect CKPT --html page.html");
  command
      ->add_option(
          "PATH", given->path,
          "A checkpoint of any format that shardmesh reads: DCP, .pt, safetensors, Hugging Face, GGUF, .npz, and more")
      ->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command
      ->add_option("--only", given->selection.only,
                   "Show only the keys that match RE, an RE2 expression for whole keys")
      ->type_name("RE")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--allow-unused", given->selection.allow_unused, "Accept an --only that matches nothing");
  command
      ->add_option(
          "--key", given->keys,
          "Show only this entry, and read nothing of the others, which is fast in large checkpoints. Names in pickles "
          "are not listed then (not with --only)")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->excludes("--only");
  command->add_option("--limit", given->limit.given, "List at most N entries and count the rest; 0 lists all")
      ->default_str("all; 100 maps or 2000 nodes with --svg")
      ->type_name("N")
      ->transform(whole_number());
  command->add_flag("--map", given->map, "Draw which rank holds which part, tensor by tensor");
  command->add_flag("--tree", given->tree, "Draw the entries as a tree of their paths, not as a list");
  command
      ->add_option("--svg", given->svg,
                   "Write a picture to FILE: the maps of the shown tensors, or the tree with --tree")
      ->type_name("FILE")
      ->check(some_path());
  command->add_option("--html", given->html, "Write a page for a browser to FILE; it needs no network")
      ->type_name("FILE")
      ->check(some_path());
  add_force_option(*command, given->force, "--svg and --html");
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
