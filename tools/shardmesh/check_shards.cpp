// SPDX-License-Identifier: Apache-2.0
// `shardmesh check-shards`: validates shard metadata given as JSON (`shard_list`).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "counted.hpp"
#include "json_writer.hpp"
#include "report.hpp"
#include "shard_list.hpp"
import shardmesh;
import shardmesh.layout;
import shardmesh.sharding;
import shardmesh.storage;

namespace tool {
namespace {

using namespace shardmesh;

std::string ranks_text(const shard_list& list, std::initializer_list<std::int64_t> shards) {
  std::vector<owner_id> ranks;
  for (const std::int64_t s : shards)
    if (list.owners[static_cast<std::size_t>(s)] != no_rank) ranks.push_back(list.owners[static_cast<std::size_t>(s)]);
  if (ranks.empty()) return {};
  return fmt::format(" (rank{} {})", ranks.size() == 1 ? "" : "s", fmt::join(ranks, " and "));
}

std::string describe(const shard_list& list, const cover_problem& p) {
  switch (p.kind) {
    case cover_kind::overlap:
      return fmt::format("shards {} and {}{} overlap in {}", p.first_index, p.second_index,
                         ranks_text(list, {p.first_index, p.second_index}), to_string(p.where));
    case cover_kind::out_of_bounds: {
      const std::string where =
          is_well_formed(p.where)
              ? to_string(p.where)
              : fmt::format("offsets {} and sizes {}", to_string(p.where.offsets), to_string(p.where.sizes));
      return fmt::format("shard {}{} extends beyond the tensor {} with {}", p.first_index,
                         ranks_text(list, {p.first_index}), to_string(list.shape), where);
    }
    case cover_kind::gap:
      return fmt::format("{} is held by no shard", to_string(p.where));
  }
  return {};
}

// Also the name of the error code.
const char* kind_name(cover_kind kind) {
  return kind == cover_kind::overlap ? "overlap" : kind == cover_kind::gap ? "gap" : "out_of_bounds";
}

constexpr const char* malformed_code = "bad_format";

// The line of a problem ends in its code, as those of errors do.
std::string with_code(const std::string& message, const char* code) {
  return fmt::format("{} [{}]", message, code);
}

void write_problem(json_writer& out, const shard_list& list, const cover_problem& p) {
  const char* const kind = kind_name(p.kind);
  out.begin_object().member("code", kind).member("kind", kind).key("shards").begin_list();
  if (p.kind != cover_kind::gap) out.value(p.first_index);
  if (p.kind == cover_kind::overlap) out.value(p.second_index);
  out.end_list();
  write_box(out, p.where);
  const std::string message = describe(list, p);
  out.member("message", message).member("text", with_code(message, kind)).end_object();
}

int report_malformed(const shard_list& list, bool json) {
  for (const std::string& one : list.problems) print_line(with_code(one, malformed_code));
  const std::int64_t more = list.problem_count - static_cast<std::int64_t>(list.problems.size());
  if (more > 0) print_line("and " + counted(more, "more problem"));
  if (!json) return problem;
  json_writer out;
  out.begin_object().member("ok", false).key("size").begin_list().end_list().member("shards", 0);
  out.key("problems").begin_list();
  for (const std::string& one : list.problems)
    out.begin_object()
        .member("code", malformed_code)
        .member("kind", "malformed")
        .member("message", one)
        .member("text", with_code(one, malformed_code))
        .end_object();
  out.end_list().member("more_problems", more).member("total", list.problem_count);
  out.member("total_is_exact", true).end_object().finish();
  return problem;
}

// The number of problems beyond those listed, at least.
std::int64_t more_of(const cover_report& report) {
  return report.total - static_cast<std::int64_t>(report.problems.size());
}

void print_json(const shard_list& list, const cover_report& report) {
  json_writer out;
  out.begin_object().member("ok", report.ok()).key("size").list(list.shape).member("shards", list.owners.size());
  out.key("problems").begin_list();
  for (const cover_problem& p : report.problems) write_problem(out, list, p);
  out.end_list().member("more_problems", more_of(report)).member("total", report.total);
  out.member("total_is_exact", report.total_is_exact).end_object().finish();
}

// PyTorch's rule: a ShardedTensor's metadata has no replicas, so equal boxes overlap, except empty and scalar ones.
int check(const shard_list& list, bool json) {
  const cover_report report =
      check_boxes(list.shape, list.offsets, list.sizes, list.owners, 100, owner_space::ranks, equal_boxes::overlap);
  for (const cover_problem& p : report.problems) print_line(with_code(describe(list, p), kind_name(p.kind)));
  const std::int64_t more = more_of(report);
  if (more > 0)
    print_line(fmt::format("and {}{}", report.total_is_exact ? "" : "at least ", counted(more, "more problem")));
  if (json)
    print_json(list, report);
  else if (report.ok() && !print(fmt::format("{} {} every cell of {} once\n", counted(list.owners.size(), "shard"),
                                             list.owners.size() == 1 ? "holds" : "hold", to_string(list.shape))))
    return not_completed;
  return report.ok() ? done : problem;
}

int run_check_shards(const std::string& path, bool json) {
  works_on(path);
  constexpr std::int64_t limit_bytes = std::int64_t{4} << 30;
  const auto read = read_file(path, limit_bytes);
  if (!read) return report(read.error());
  const shard_list list = parse_shard_list({reinterpret_cast<const char*>(read->data()), read->size()}, path);
  if (list.problem_count > 0) return report_malformed(list, json);
  return check(list, json);
}

}  // namespace

void add_check_shards(CLI::App& app, invocation& call) {
  struct arguments {
    std::string path;
    bool json = false;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* command = app.add_subcommand("check-shards", "Check that shards cover their tensor exactly once");
  command->footer("shardmesh check-shards shards.json");
  command
      ->add_option("FILE", a->path,
                   R"(JSON: {"size": [..], "shards": [{"offsets": [..], "sizes": [..], "placement": "rank:0/cpu"}]})")
      ->required();
  command->add_flag("--json", a->json, "Print one JSON document");
  command->callback([a, &call] { call.status = run_check_shards(a->path, a->json); });
}

}  // namespace tool
