// SPDX-License-Identifier: Apache-2.0
// `shardmesh check-shards`: validates shard metadata given as JSON:
// {"size":[..],"shards":[{"offsets":[..],"sizes":[..],"placement":"rank:0/cpu"}]}
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "console.hpp"
#include "report.hpp"
import shardmesh;

namespace tool {
namespace {

using namespace shardmesh;
namespace dom = simdjson::dom;

constexpr std::int32_t no_rank = -1;

// What the file says, as far as it makes sense, and what does not.
struct shard_list {
  extents shape;
  std::vector<std::int64_t> offsets, sizes;
  std::vector<owner_id> owners;  // no_rank: the placement names no rank
  std::vector<std::string> problems;
  std::int64_t problem_count = 0;

  void report(std::string line) {
    if (++problem_count <= 100) problems.push_back(std::move(line));
  }
};

// A list of whole numbers of at least 0; why not, else.
std::string read_numbers(simdjson::simdjson_result<dom::element> element, std::string_view what,
                         std::vector<std::int64_t>& out) {
  dom::array list;
  if (element.error() == simdjson::NO_SUCH_FIELD) return fmt::format("\"{}\" is missing", what);
  if (element.get(list) != simdjson::SUCCESS) return fmt::format("\"{}\" is not a list", what);
  for (const dom::element item : list) {
    std::int64_t value = 0;
    if (item.get(value) != simdjson::SUCCESS)
      return item.is<std::uint64_t>() ? fmt::format("\"{}\" has a number that does not fit in 64 bits", what)
                                      : fmt::format("\"{}\" has an entry that is not a whole number: {}", what,
                                                    escaped(simdjson::minify(item)).substr(0, 60));
    if (value < 0) return fmt::format("\"{}\" has a negative number: {}", what, value);
    out.push_back(value);
  }
  return {};
}

std::string read_rank(simdjson::simdjson_result<dom::element> element, owner_id& rank) {
  rank = no_rank;
  if (element.error() == simdjson::NO_SUCH_FIELD || element.is_null()) return {};
  std::string_view text;
  if (element.get(text) != simdjson::SUCCESS) return "\"placement\" is not a string";
  const auto device = parse_remote_device(text);
  if (!device) return to_string(device.cause());
  if (device->rank && *device->rank >= 0) rank = *device->rank;
  return {};
}

void read_shard(const dom::element& shard, std::int64_t index, shard_list& list) {
  const auto bad = [&](const std::string& why) { list.report(fmt::format("shard {}: {}", index, why)); };
  if (!shard.is_object()) return bad("it is not an object");
  static thread_local std::vector<std::int64_t> offsets, sizes;
  offsets.clear();
  sizes.clear();
  owner_id rank = no_rank;
  if (const auto why = read_numbers(shard["offsets"], "offsets", offsets); !why.empty()) return bad(why);
  if (const auto why = read_numbers(shard["sizes"], "sizes", sizes); !why.empty()) return bad(why);
  if (const auto why = read_rank(shard["placement"], rank); !why.empty()) return bad(why);
  if (offsets.size() != list.shape.rank() || sizes.size() != list.shape.rank())
    return bad(fmt::format("{} offsets and {} sizes for a tensor of {} dimension{}", offsets.size(), sizes.size(),
                           list.shape.rank(), list.shape.rank() == 1 ? "" : "s"));
  list.offsets.insert(list.offsets.end(), offsets.begin(), offsets.end());
  list.sizes.insert(list.sizes.end(), sizes.begin(), sizes.end());
  list.owners.push_back(rank);
}

// The whole document; false when it is not of the expected form (the problems say why).
bool read_document(const dom::element& document, shard_list& list) {
  if (!document.is_object()) return list.report("the document is not an object"), false;
  std::vector<std::int64_t> size;
  if (const auto why = read_numbers(document["size"], "size", size); !why.empty()) return list.report(why), false;
  if (size.size() > max_rank)
    return list.report(fmt::format("\"size\" has {} dimensions; at most {}", size.size(), max_rank)), false;
  list.shape = extents(size);
  if (const auto valid = check_shape(list.shape); !valid) return list.report(to_string(valid.cause())), false;
  dom::array shards;
  const auto element = document["shards"];
  if (element.error() == simdjson::NO_SUCH_FIELD) return list.report("\"shards\" is missing"), false;
  if (element.get(shards) != simdjson::SUCCESS) return list.report("\"shards\" is not a list"), false;
  std::int64_t index = 0;
  for (const dom::element shard : shards) read_shard(shard, index++, list);
  return list.problem_count == 0;
}

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
  if (!read) return report(read.cause());
  const simdjson::padded_string bytes(reinterpret_cast<const char*>(read->data()), read->size());
  dom::parser parser;
  dom::element document;
  shard_list list;
  if (const auto code = parser.parse(bytes).get(document); code != simdjson::SUCCESS) {
    if (code == simdjson::MEMALLOC) throw std::bad_alloc();
    list.report(fmt::format("{}: not JSON: {}", escaped(path), simdjson::error_message(code)));
    return report_malformed(list, json);
  }
  if (!read_document(document, list)) return report_malformed(list, json);
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
