// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
module shardmesh.checkpoint;

import shardmesh.storage;
import :consolidated_sizes;

namespace shardmesh {
namespace fs = places;
namespace {

constexpr std::int64_t most_file_bytes = std::int64_t{1} << 20;
// Real files nest two objects.
constexpr int most_levels = 8;
// Larger numbers are not sizes of a model. The bound keeps the arithmetic in doubles exact.
constexpr std::int64_t most = std::int64_t{1} << 40;

std::optional<std::int64_t> size_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    return std::nullopt;
  const auto value = found->get<std::int64_t>();
  return value > 0 ? std::optional(value) : std::nullopt;
}

// The width of the feed-forward layers of Llama 1 to 3. Other models compute it in other ways.
// Source: FeedForward in meta-llama/llama3, llama/model.py
std::optional<std::int64_t> feed_forward_of(const nlohmann::json& params, std::int64_t model) {
  const auto multiple = size_in(params, "multiple_of");
  if (!multiple || params.contains("moe_args") || params.contains("ffn_exp") || params.contains("hidden_dim"))
    return std::nullopt;
  double width = std::trunc(8.0 * static_cast<double>(model) / 3.0);
  const auto factor = params.find("ffn_dim_multiplier");
  if (factor != params.end() && factor->is_number()) width = std::trunc(factor->get<double>() * width);
  if (!(width >= 1.0) || width > static_cast<double>(most)) return std::nullopt;
  const auto whole = static_cast<std::int64_t>(width);
  return (whole + *multiple - 1) / *multiple * *multiple;
}

result<nlohmann::json> read_params(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored))
    return fail(errc::missing_key, "does not exist, but its sizes decide how the files are merged")
        .with_file(file.string())
        .with_hint("copy it from the model's download, or open the files one by one");
  SHARDMESH_TRY(const auto bytes, read_file(file, most_file_bytes));
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  // The callback drops deeper values, so no deep document is built.
  nlohmann::json parsed = nlohmann::json::parse(
      text, text + bytes.size(),
      [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= most_levels; }, false);
  if (parsed.is_discarded() || !parsed.is_object())
    return fail(errc::bad_format, "is not a JSON object").with_file(file.string());
  // Chameleon has the sizes of the text model in an object of this name.
  const auto model = parsed.find("model");
  if (model != parsed.end() && model->is_object()) return nlohmann::json(*model);
  return parsed;
}

}  // namespace

result<consolidated_sizes> read_consolidated_sizes(const fs::path& file, std::int64_t files) {
  SHARDMESH_TRY(const nlohmann::json params, read_params(file));
  const auto at = [&](error why, const char* name) { return std::move(why).with_key(name).with_file(file.string()); };
  const auto model = size_in(params, "dim");
  const auto heads = size_in(params, "n_heads");
  if (!model || !heads)
    return at(fail(errc::missing_key, "is not a positive integer, but this size decides how the files are merged"),
              model ? "n_heads" : "dim");
  // Llama 1 has as many key-value heads as query heads.
  const std::int64_t key_heads = size_in(params, "n_kv_heads").value_or(*heads);
  const auto given_head = size_in(params, "head_dim");
  if (!given_head && *model % *heads != 0)
    return at(fail(errc::bad_format, fmt::format("does not divide 'dim', {}", *model)), "n_heads");
  const std::int64_t head = given_head.value_or(*model / *heads);
  const auto queries = checked_multiply(*heads, head);
  const auto keys = checked_multiply(key_heads, head);
  if (!queries || !keys || *queries > most || *keys > most)
    return at(fail(errc::overflow, fmt::format("{} heads of {} elements are implausibly large", *heads, head)),
              "n_heads");
  if (key_heads % files != 0)
    return at(fail(errc::unsupported, fmt::format("{} files hold the key-value heads repeated or split, and no rule "
                                                  "says in which order",
                                                  files))
                  .with_values(fmt::format("a multiple of {}", files), fmt::format("{}", key_heads))
                  .with_hint("open the files one by one"),
              "n_kv_heads");
  consolidated_sizes made{.files = files, .model = *model, .queries = *queries, .keys = *keys};
  made.vocabulary = size_in(params, "vocab_size");
  made.feed_forward = feed_forward_of(params, *model);
  if (const auto moe = params.find("moe_args"); moe != params.end() && moe->is_object())
    made.expert_number = size_in(*moe, "num_experts");
  return made;
}

}  // namespace shardmesh
