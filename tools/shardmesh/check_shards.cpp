// SPDX-License-Identifier: Apache-2.0
// `shardmesh check-shards`: validates shard metadata given as JSON (shard_list).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "report.hpp"
#include "shard_list.hpp"
import shardmesh;
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
      return fmt::format("shard {}{} leaves the tensor {} with {}", p.first_index, ranks_text(list, {p.first_index}),
                         to_string(list.shape), where);
    }
    case cover_kind::gap:
      return fmt::format("{} is held by no shard", to_string(p.where));
  }
  return {};
}

std::string quoted(const std::string& text) {  // `text` is escaped already
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + "\"";
}

const char* kind_name(cover_kind kind) {
  return kind == cover_kind::overlap ? "overlap" : kind == cover_kind::gap ? "gap" : "out_of_bounds";
}

std::string problem_json(const shard_list& list, const cover_problem& p) {
  std::string shards;
  if (p.kind == cover_kind::overlap) shards = fmt::format("{},{}", p.first_index, p.second_index);
  if (p.kind == cover_kind::out_of_bounds) shards = std::to_string(p.first_index);
  return fmt::format(
      "{{\"kind\":\"{0}\",\"shards\":[{1}],\"offsets\":[{2}],\"sizes\":[{3}],\"message\":{4},\"text\":{4}}}",
      kind_name(p.kind), shards, fmt::join(p.where.offsets.begin(), p.where.offsets.end(), ","),
      fmt::join(p.where.sizes.begin(), p.where.sizes.end(), ","), quoted(describe(list, p)));
}

int report_malformed(const shard_list& list, bool json) {
  std::string document;
  for (const std::string& line : list.problems) {
    print_line(line);
    document += fmt::format("{0}{{\"kind\":\"malformed\",\"message\":{1},\"text\":{1}}}", document.empty() ? "" : ",",
                            quoted(line));
  }
  if (list.problem_count > static_cast<std::int64_t>(list.problems.size()))
    print_line(
        fmt::format("and {} more problems", list.problem_count - static_cast<std::int64_t>(list.problems.size())));
  if (json && !print(fmt::format("{{\"ok\":false,\"problems\":[{}],\"total\":{}}}\n", document, list.problem_count)))
    return not_completed;
  return problem;
}

// As PyTorch does: a ShardedTensor's metadata knows no replicas, so equal boxes overlap, but for empty and scalar ones.
int check(const shard_list& list, bool json) {
  const cover_report report =
      check_boxes(list.shape, list.offsets, list.sizes, list.owners, 100, owner_space::ranks, equal_boxes::overlap);
  for (const cover_problem& p : report.problems) print_line(describe(list, p));
  if (report.total > static_cast<std::int64_t>(report.problems.size()))
    print_line(fmt::format("and {}{} more problems", report.total_is_exact ? "" : "at least ",
                           report.total - static_cast<std::int64_t>(report.problems.size())));
  std::string text;
  if (json) {
    for (const cover_problem& p : report.problems) text += (text.empty() ? "" : ",") + problem_json(list, p);
    text = fmt::format("{{\"ok\":{},\"size\":[{}],\"shards\":{},\"problems\":[{}],\"total\":{}}}\n", report.ok(),
                       fmt::join(list.shape.begin(), list.shape.end(), ","), list.owners.size(), text, report.total);
  } else if (report.ok()) {
    text = fmt::format("{} shard{} hold every cell of {} once\n", list.owners.size(),
                       list.owners.size() == 1 ? "" : "s", to_string(list.shape));
  }
  if (!print(text)) return not_completed;
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
  CLI::App* command =
      app.add_subcommand("check-shards", "Whether shards given as JSON cover their tensor, each cell once");
  command
      ->add_option("FILE", a->path,
                   R"(JSON: {"size":[..],"shards":[{"offsets":[..],"sizes":[..],"placement":"rank:0/cpu"}]})")
      ->required();
  command->add_flag("--json", a->json, "One JSON document on stdout");
  command->callback([a, &call] { call.status = run_check_shards(a->path, a->json); });
}

}  // namespace tool
