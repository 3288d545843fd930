// SPDX-License-Identifier: Apache-2.0
// shardmesh clean: takes away what killed runs left beside their destinations.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "leftovers.hpp"
#include "report.hpp"

import shardmesh;

namespace tool {

std::vector<std::string> leftover_notes(const std::string& path) {
  std::vector<std::string> lines;
  const auto found = shardmesh::find_leftovers(path);
  if (!found) return lines;
  for (const shardmesh::leftover& one : *found)
    if (one.owner == shardmesh::leftover_owner::dead)
      lines.push_back(fmt::format("{}: {} that a killed run left; `shardmesh clean` removes it", one.path.string(),
                                  shardmesh::human_bytes(one.size_bytes)));
  return lines;
}

namespace {

using namespace shardmesh;

struct arguments {
  std::string path;
  bool json = false, dry_run = false;
};

std::string why_kept(leftover_owner owner) {
  return owner == leftover_owner::alive ? "it is being written"
                                        : "another host may be writing it: its lock is not seen from here";
}

class cleaning {
 public:
  explicit cleaning(const arguments& given) : given_(given) {}

  int run() {
    works_on(given_.path);
    const auto found = find_leftovers(given_.path);
    if (!found) keep_problem(found.error());
    if (found)
      for (const leftover& one : *found) one.owner == leftover_owner::dead ? remove(one) : keep(one);
    if (given_.json)
      print(fmt::format(R"({{"ok":{},"dry_run":{},"removed":[{}],"kept":[{}],"problems":[{}]}})"
                        "\n",
                        problems_.empty(), given_.dry_run, fmt::join(removed_, ","), fmt::join(kept_, ","),
                        to_json(problems_)));
    else if (problems_.empty() && removed_.empty() && kept_.empty())
      print(fmt::format("{}: no leftovers\n", escaped(given_.path)));
    return status_;
  }

 private:
  void remove(const leftover& one) {
    if (!given_.dry_run)
      if (const auto done = remove_leftover(one.path, {.may_replace = holds_one_checkpoint}); !done)
        return keep_problem(done.error());
    removed_.push_back(members(one) + "}");
    if (!given_.json)
      print(fmt::format("{} {} ({})\n", given_.dry_run ? "would remove" : "removed", escaped(one.path.string()),
                        human_bytes(one.size_bytes)));
  }

  void keep(const leftover& one) {
    kept_.push_back(fmt::format(R"({},"why":{}}})", members(one), json_quoted(why_kept(one.owner))));
    if (!given_.json)
      print(fmt::format("kept {} ({}): {}\n", escaped(one.path.string()), human_bytes(one.size_bytes),
                        why_kept(one.owner)));
  }

  void keep_problem(const error& cause) {
    print_problem(cause);
    status_ = std::max(status_, status_of(cause));
    problems_.push_back(cause);
  }

  static std::string members(const leftover& one) {
    return fmt::format(R"({{"path":{},"bytes":{})", json_quoted(one.path.string()), one.size_bytes);
  }

  const arguments& given_;
  std::vector<std::string> removed_, kept_;  // as JSON
  std::vector<error> problems_;
  int status_ = done;
};

}  // namespace

void add_clean(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command = app.add_subcommand(
      "clean", "Remove what killed runs left beside a destination or in a folder; what is being written is kept");
  command->add_option("PATH", given->path, "A destination of convert, reshard or save, or a folder of them")
      ->required();
  command->add_flag("--dry-run", given->dry_run, "Say what would be removed, remove nothing");
  command->add_flag("--json", given->json, "Print one JSON document");
  command->callback([given, &call] { call.status = cleaning(*given).run(); });
}

}  // namespace tool
