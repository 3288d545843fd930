// SPDX-License-Identifier: Apache-2.0
// `shardmesh clean`: removes the leftovers of killed runs beside their destinations.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "json_writer.hpp"
#include "leftovers.hpp"
#include "report.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.storage;

namespace tool {

std::vector<std::string> leftover_notes(const std::string& path) {
  std::vector<std::string> lines;
  shardmesh::call_options limits;
  if (shardmesh::is_url(path)) limits.within = std::chrono::seconds(10);  // a server that is slow is not waited for
  const shardmesh::detail::call_scope scope(limits);
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

std::string why_kept(const leftover& one) {
  if (is_url(one.path)) return "it may be being written: it was begun less than a day ago, or at an unknown time";
  return one.owner == leftover_owner::alive ? "it is being written"
                                            : "another host may be writing it: this host cannot see its lock";
}

class cleaning {
 public:
  explicit cleaning(const arguments& given) : given_(given) {}

  int run() {
    works_on(given_.path);
    if (is_url(given_.path) && !detail::check_can_write(given_.path))
      keep_problem(fail(errc::unsupported, "no destination is written there, and none is cleaned")
                       .with_file(given_.path)
                       .with_hint("give a local path, or a URL of s3:// or gs://"));
    else
      clean();
    if (given_.json)
      print_document();
    else if (problems_.empty() && removed_.empty() && kept_.empty())
      print(fmt::format("{}: no leftovers\n", escaped(given_.path)));
    return status_;
  }

 private:
  void clean() {
    const auto found = find_leftovers(given_.path);
    if (!found) {
      keep_problem(found.error());
    } else if (found->empty() && !is_url(given_.path) && !is_there()) {
      keep_problem(fail_sys(ENOENT, "neither this path nor a leftover of it exists", given_.path));
    } else {
      for (const leftover& one : *found) one.owner == leftover_owner::dead ? remove(one) : keep(one);
    }
  }

  // A dangling link counts as present.
  bool is_there() const {
    std::error_code code;
    return std::filesystem::exists(std::filesystem::symlink_status(given_.path, code));
  }

  void remove(const leftover& one) {
    if (!given_.dry_run)
      if (const auto done = remove_leftover(one.path, {.may_replace = holds_one_checkpoint}); !done)
        return keep_problem(done.error());
    removed_.push_back(one);
    if (!given_.json)
      print(fmt::format("{} {} ({})\n", given_.dry_run ? "would remove" : "removed", escaped(one.path.string()),
                        human_bytes(one.size_bytes)));
  }

  void keep(const leftover& one) {
    kept_.push_back(one);
    if (!given_.json)
      print(fmt::format("kept {} ({}): {}\n", escaped(one.path.string()), human_bytes(one.size_bytes), why_kept(one)));
  }

  void keep_problem(const error& cause) {
    status_ = std::max(status_, report(cause));
    problems_.push_back(cause);
  }

  void print_document() const {
    json_writer out;
    out.begin_object().member("ok", problems_.empty()).member("dry_run", given_.dry_run).key("removed").begin_list();
    for (const leftover& one : removed_)
      out.begin_object().member("path", one.path.string()).member("bytes", one.size_bytes).end_object();
    out.end_list().key("kept").begin_list();
    for (const leftover& one : kept_)
      out.begin_object()
          .member("path", one.path.string())
          .member("bytes", one.size_bytes)
          .member("why", why_kept(one))
          .end_object();
    out.end_list();
    write_problems(out, problems_);
    out.end_object().finish();
  }

  const arguments& given_;
  std::vector<leftover> removed_, kept_;
  std::vector<error> problems_;
  int status_ = done;
};

}  // namespace

void add_clean(CLI::App& app, invocation& call) {
  auto given = std::make_shared<arguments>();
  CLI::App* command = app.add_subcommand(
      "clean",
      "Remove the leftovers of killed runs. They lie beside a destination, or in a folder of destinations; files that "
      "are being written are kept. Under s3:// and gs://, leftovers are multipart uploads that began a day ago or "
      "earlier");
  command->footer(
      "shardmesh clean CKPT --dry-run\n"
      "shardmesh clean CKPT");
  command->add_option("PATH", given->path, "A destination of convert, reshard, or save, or a folder of destinations")
      ->required();
  command->add_flag("--dry-run", given->dry_run, "List what would be removed, but remove nothing");
  command->add_flag("--json", given->json, "Print one JSON document");
  command->callback([given, &call] { call.status = cleaning(*given).run(); });
}

}  // namespace tool
