// SPDX-License-Identifier: Apache-2.0
// shardmesh diff: what differs between two checkpoints of any formats?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <range/v3/view/take.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "opening.hpp"
#include "report.hpp"
#include "selection_options.hpp"

import shardmesh;

namespace tool {
namespace {

using namespace shardmesh;

struct arguments {
  std::string left, right;
  bool json = false;
  std::int64_t limit = -1;  // -1: the default
  diff_options options;
  selection_arguments selection;
};

// A rule that matches on neither side is an error; one side is enough.
result<void> check_rules(const checkpoint_reader& left, const checkpoint_reader& right,
                         const selection_options& options) {
  std::map<std::string_view, selectable> keys;
  for (const checkpoint_reader* reader : {&left, &right}) {
    for (const tensor_entry& tensor : reader->contents().tensors)
      keys.try_emplace(tensor.key, selectable{tensor.key, tensor.type, true});
    for (const object_entry& object : reader->contents().objects)
      keys.try_emplace(object.key, selectable{object.key, dtype::undefined, false});
  }
  std::vector<selectable> candidates;
  for (const auto& [key, candidate] : keys) candidates.push_back(candidate);
  // What is wrong with one key is for its side to say: keys of different sides may well meet after renaming.
  for (const error& e : select_keys(candidates, options).errors)
    if (e.key.empty()) return e;
  return {};
}

result<diff_side> chosen_side(checkpoint_reader& reader, selection_options options) {
  options.allow_unused = true;
  diff_side all = whole_side(reader);
  std::vector<selectable> candidates;
  for (const diff_entry& entry : all.entries) candidates.push_back({entry.key, entry.type, entry.is_tensor});
  selection_result chosen = select_keys(candidates, options);
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

// "3 keys differ: 2 values, 1 shape".
std::string summary(const std::vector<difference>& differences) {
  std::map<std::string_view, std::int64_t> by_kind;
  std::set<std::string_view> keys;
  for (const difference& d : differences) ++by_kind[name(d.what)], keys.insert(d.key);
  std::string text =
      fmt::format("{} key{} differ{}: ", keys.size(), keys.size() == 1 ? "" : "s", keys.size() == 1 ? "s" : "");
  std::string_view separator;
  for (const auto& [kind, count] : by_kind) {
    text += fmt::format("{}{} {}", separator, count, kind);
    separator = ", ";
  }
  return text;
}

void print_json(const diff_report& outcome, std::int64_t limit) {
  const auto shown = std::min(outcome.differences.size(), static_cast<std::size_t>(limit));
  print(fmt::format(R"({{"ok":{},"equal":{},"differences":[)", outcome.problems.empty(), equality(outcome)));
  for (std::size_t i = 0; i < shown; ++i) print((i == 0 ? "" : ",") + to_json(outcome.differences[i]));
  print(fmt::format(R"(],"more_differences":{},"problems":[{}],"tensors":{},"objects":{},"bytes":{}}})"
                    "\n",
                    outcome.differences.size() - shown, tool::to_json(outcome.problems), outcome.tensors,
                    outcome.objects, outcome.bytes));
}

void print_text(const diff_report& outcome, std::int64_t limit) {
  const auto shown = std::min(outcome.differences.size(), static_cast<std::size_t>(limit));
  for (const difference& d : outcome.differences | ranges::views::take(shown))
    print_line(fmt::format("{}: {}", escaped(d.key), escaped(d.text)));
  if (shown < outcome.differences.size())
    print_line(fmt::format("... and {} more differences", outcome.differences.size() - shown));
}

int run(arguments& given, const common_options& common) {
  works_on(given.left);
  auto left = open_source(given.left, common);
  if (!left) return report(left.error());
  works_on(given.right);
  auto right = open_source(given.right, common);
  if (!right) return report(right.error());
  works_on(given.left);
  const auto selection = given.selection.compile();
  if (!selection) return report(selection.error());
  const alike_readers both(**left, **right);
  if (auto checked = check_rules(both.left(), both.right(), *selection); !checked) return report(checked.error());
  auto left_side = chosen_side(both.left(), *selection);
  if (!left_side) return report(left_side.error());
  auto right_side = chosen_side(both.right(), *selection);
  if (!right_side) return report(right_side.error());
  given.options.threads = common.threads;
  auto outcome = diff(*left_side, *right_side, given.options);
  if (!outcome) return report(outcome.error());
  // What could not be read is a difference of its own; the comparison went on.
  std::vector<error>& problems = outcome->problems;
  for (const auto* reader : {left->get(), right->get()})
    for (const error& e : reader->problems()) {
      print_problem(e);
      problems.push_back(e);
    }
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max(), lines = 100;
  print_text(*outcome, given.limit < 0 ? lines : given.limit == 0 ? all : given.limit);
  if (given.json)
    print_json(*outcome, given.limit <= 0 ? all : given.limit);
  else if (!outcome->differences.empty() || problems.empty())
    print(fmt::format("{}{} tensors ({}) and {} objects\n",
                      outcome->differences.empty() ? "equal: " : summary(outcome->differences) + "; compared ",
                      outcome->tensors, human_bytes(outcome->bytes), outcome->objects));
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
  command
      ->add_option("--limit", given->limit,
                   "Name at most N differences and count the rest (default: 100 lines, all of them in JSON; 0: all)")
      ->type_name("N")
      ->check(whole_number());
  command->add_flag("--layout", given->options.layout, "Compare how tensors are cut into chunks, too");
  command->add_flag("--ignore-dtype", given->options.ignore_dtype, "Compare values across dtypes");
  add_selection_options(*command, given->selection);
  command->callback([given, &call] { call.status = run(*given, call.common); });
}

}  // namespace tool
