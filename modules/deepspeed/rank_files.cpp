// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.deepspeed;

import :rank_files;

namespace shardmesh::deepspeed {
namespace fs = places;
namespace {

constexpr std::string_view data_prefix = "zero_pp_rank_", model_prefix = "mp_rank_";

struct parsed_name {
  bool is_optimizer = false;
  std::optional<std::int64_t> data_rank;
  std::int64_t model_rank = 0;
};

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || number < 0 || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<parsed_name> parse(std::string_view name) {
  parsed_name made;
  const bool has_precision = take(name, "bf16_") || take(name, "fp16_");
  if (take(name, data_prefix)) {
    made.data_rank = take_number(name);
    if (!made.data_rank || !take(name, "_")) return std::nullopt;
  }
  if (!take(name, model_prefix)) return std::nullopt;
  const auto model_rank = take_number(name);
  if (!model_rank) return std::nullopt;
  made.model_rank = *model_rank;
  // The first releases had no "_" before "optim".
  made.is_optimizer = name == "_optim_states.pt" || name == "optim_states.pt";
  if (!made.is_optimizer && (name != "_model_states.pt" || has_precision)) return std::nullopt;
  if (made.is_optimizer && !made.data_rank) return std::nullopt;
  return made;
}

// Returns the content of files that no rule here merges; empty for other names.
std::string_view kind_not_read(std::string_view name) {
  if (name.starts_with("expp_rank_") && name.ends_with("_optim_states.pt")) return "experts";
  if (name.starts_with("layer_") && name.ends_with("_model_states.pt") && name.find("_expert_") != name.npos)
    return "experts";
  if (name.starts_with("layer_") && name.ends_with("model_states.pt")) return "pipeline stages";
  return "";
}

}  // namespace

bool is_rank_file(std::string_view name) {
  return parse(name).has_value() || !kind_not_read(name).empty();
}

std::string name_for_rank(const std::string& name, std::int64_t rank) {
  const std::size_t begin = name.find(data_prefix) + data_prefix.size();
  return name.substr(0, begin) + std::to_string(rank) + name.substr(name.find('_', begin));
}

std::string model_file_beside(const std::string& optimizer, std::optional<std::int64_t> rank) {
  const std::size_t begin = optimizer.find(model_prefix, optimizer.find(data_prefix) + data_prefix.size());
  const std::size_t end = optimizer.find_first_not_of("0123456789", begin + model_prefix.size());
  return (rank ? fmt::format("{}{}_", data_prefix, *rank) : std::string()) + optimizer.substr(begin, end - begin) +
         "_model_states.pt";
}

result<std::map<std::int64_t, model_parallel_rank>> list_rank_files(const fs::path& step) {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator at(step, code), end; !code && at != end; at.increment(code))
    names.push_back(at->path().filename().string());
  if (code) return fs::failure(code, "cannot list", step);
  std::sort(names.begin(), names.end());  // errors then do not depend on the file system
  std::map<std::int64_t, model_parallel_rank> ranks;
  for (const std::string& name : names) {
    if (const std::string_view kind = kind_not_read(name); !kind.empty())
      return fail(errc::unsupported, fmt::format("it holds {}, whose files shardmesh does not combine", kind))
          .with_file((step / name).string())
          .with_hint("open it directly, as a file of torch.save");
    const auto parsed = parse(name);
    if (!parsed) continue;
    model_parallel_rank& rank = ranks[parsed->model_rank];
    std::string* place = &rank.model;
    if (parsed->data_rank) place = &(parsed->is_optimizer ? rank.optimizers : rank.models)[*parsed->data_rank];
    if (!place->empty())
      return fail(errc::bad_format, "two files are of one rank, so they are of different saves")
          .with_file((step / name).string())
          .with_values("one file", *place);
    *place = name;
  }
  return ranks;
}

}  // namespace shardmesh::deepspeed
