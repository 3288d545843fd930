// SPDX-License-Identifier: Apache-2.0
// shardmesh diff: what differs between two checkpoints of any formats?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "report.hpp"
#include "selection_options.hpp"

import shardmesh;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string left, right;
  bool json = false;
  diff_options options;
  selection_options selection;
};

// A rule that matches on neither side is an error; one side is enough.
result<void> check_rules(const checkpoint_reader& left, const checkpoint_reader& right,
                         const selection_options& options) {
  auto rules = selection::compile(options);
  if (!rules) return rules.cause();
  std::map<std::string_view, selectable> keys;
  for (const checkpoint_reader* reader : {&left, &right}) {
    for (const tensor_entry& tensor : reader->contents().tensors)
      keys.try_emplace(tensor.key, selectable{tensor.key, tensor.type, true});
    for (const object_entry& object : reader->contents().objects)
      keys.try_emplace(object.key, selectable{object.key, dtype::undefined, false});
  }
  std::vector<selectable> candidates;
  for (const auto& [key, candidate] : keys) candidates.push_back(candidate);
  // Keys of different sides may well meet after renaming: that is what renaming is for here.
  for (const error& e : rules->apply(candidates).errors)
    if (e.code != errc::duplicate_key) return e;
  return {};
}

result<diff_side> chosen_side(checkpoint_reader& reader, selection_options options) {
  options.allow_unused = true;
  auto rules = selection::compile(options);
  if (!rules) return rules.cause();
  diff_side all = whole_side(reader);
  std::vector<selectable> candidates;
  for (const diff_entry& entry : all.entries) candidates.push_back({entry.key, entry.type, entry.is_tensor});
  selection_result chosen = rules->apply(candidates);
  if (!chosen.errors.empty()) return chosen.errors.front();
  diff_side side{reader, {}};
  for (selected& one : chosen.kept) {
    const diff_entry& entry = all.entries[one.index];
    side.entries.push_back({std::move(one.key), entry.index, entry.is_tensor, one.type});
  }
  return side;
}

std::string to_json(const difference& d) {
  std::string text =
      fmt::format(R"({{"key":{},"what":"{}","text":{})", json_quoted(d.key), name(d.what), json_quoted(d.text));
  if (d.what == difference_kind::values)
    text += fmt::format(R"(,"different":{},"elements":{},"first_index":[{}],"largest_difference":{})", d.different,
                        d.elements, fmt::join(d.first_index.begin(), d.first_index.end(), ","),
                        json_quoted(fmt::format("{}", d.largest)));
  return text + "}";
}

// "null" when all that differs may be what could not be read.
std::string_view equality(const diff_report& report) {
  for (const difference& d : report.differences)
    if (d.what != difference_kind::unreadable) return "false";
  return report.problems.empty() ? "true" : "null";
}

// Nothing could be compared.
int report_nothing(const std::vector<error>& problems, int status, bool json) {
  for (const error& e : problems) print_problem(e);
  if (json) fmt::print("{{\"equal\":null,\"differences\":[],\"problems\":[{}]}}\n", tool::to_json(problems));
  return status;
}

int run(arguments& given, const common_options& common) {
  const auto nothing = [&](const error& cause) { return report_nothing({cause}, status_of(cause), given.json); };
  auto left = open_checkpoint(given.left, {.limits = read_limits{}.times(common.limit_factor)});
  if (!left) return nothing(left.cause());
  auto right = open_checkpoint(given.right, {.limits = read_limits{}.times(common.limit_factor)});
  if (!right) return nothing(right.cause());
  if (auto checked = check_rules(**left, **right, given.selection); !checked) return nothing(checked.cause());
  auto left_side = chosen_side(**left, given.selection);
  if (!left_side) return nothing(left_side.cause());
  auto right_side = chosen_side(**right, given.selection);
  if (!right_side) return nothing(right_side.cause());
  given.options.threads = common.threads;
  auto outcome = diff(*left_side, *right_side, given.options);
  if (!outcome) return nothing(outcome.cause());
  // What could not be read is a difference of its own; the comparison went on.
  std::vector<error>& problems = outcome->problems;
  for (const auto* reader : {left->get(), right->get()})
    for (const error& e : reader->problems()) {
      print_problem(e);
      problems.push_back(e);
    }
  for (const difference& d : outcome->differences) print_problem(fmt::format("{}: {}", escaped(d.key), d.text));
  if (given.json) {
    std::string list;
    for (const difference& d : outcome->differences) list += (list.empty() ? "" : ",") + to_json(d);
    fmt::print(R"({{"equal":{},"differences":[{}],"problems":[{}],"tensors":{},"objects":{},"bytes":{}}})"
               "\n",
               equality(*outcome), list, tool::to_json(problems), outcome->tensors, outcome->objects, outcome->bytes);
  } else if (outcome->differences.empty() && problems.empty()) {
    fmt::print("equal: {} tensors ({}) and {} objects\n", outcome->tensors, human_bytes(outcome->bytes),
               outcome->objects);
  }
  int status = outcome->differences.empty() && problems.empty() ? done : problem;
  for (const error& e : problems)
    if (status_of(e) == not_completed) status = not_completed;
  return status;
}

}  // namespace

void add_diff(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command =
      app.add_subcommand("diff", "Compare names, dtypes, shapes and values of two checkpoints of any formats");
  command->add_option("A", given->left, "The left checkpoint")->required();
  command->add_option("B", given->right, "The right checkpoint")->required();
  command->add_flag("--json", given->json, "Print one JSON document");
  command
      ->add_option("--tolerance", given->options.tolerance,
                   "|a-b| <= T + T*|b| counts as equal (default: equal bits; NaN equals NaN, -0 equals 0)")
      ->type_name("T")
      ->check(tolerance());
  command->add_flag("--layout", given->options.layout, "Compare how tensors are cut into chunks, too");
  command->add_flag("--ignore-dtype", given->options.ignore_dtype, "Compare values across dtypes");
  add_selection_options(*command, given->selection);
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
