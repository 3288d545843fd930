// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <mapping/llama_cpp/json_members.hpp>
#include <shardmesh/try.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :architectures;
import :hf_folder;
import :hyper_parameters;
import :model_value;
import :rope_scaling;

namespace shardmesh::llama_cpp {
namespace {

using detail::integer_in, detail::member_of, detail::number_member, detail::text_member;
using json = nlohmann::json;

// A member of "text_config", or else of the configuration.
std::optional<double> number_in(const json& config, std::string_view name) {
  if (const json* const text = member_of(config, "text_config"))
    if (const auto found = number_member(*text, name)) return found;
  return number_member(config, name);
}

// Makes the value of a field, or states why there is none. Nothing for both: the field does not apply.
class field_reader {
 public:
  field_reader(const json& config, const model_architecture& model, const named_sizes& numbers)
      : config_(config), model_(model), numbers_(numbers) {}

  void read(const model_field& field, hyper_parameters& to) {
    if (!field.condition.empty()) {
      const auto applies = value_of(field.condition);
      if (applies && *applies == 0) return;
    }
    std::string key = fmt::format("{}.{}", model_.name, field.key);
    if (field.kind == field_kind::fraction)
      read_fraction(field, std::move(key), to);
    else
      read_integer(field, std::move(key), to);
  }

 private:
  result<std::int64_t> value_of(std::string_view expression) const {
    SHARDMESH_TRY(const size_expression parsed, size_expression::parse(expression));
    return parsed.evaluate(numbers_);
  }

  void read_fraction(const model_field& field, std::string key, hyper_parameters& to) const {
    auto number = number_in(config_, field.value);
    if (!number) number = field.otherwise;
    if (number && std::abs(*number) <= static_cast<double>(std::numeric_limits<float>::max()))
      to.values.push_back(fraction_value(std::move(key), *number));
    else if (number || field.is_needed)
      to.missing.push_back(fmt::format("{} ({})", key, field.value));
  }

  void read_integer(const model_field& field, std::string key, hyper_parameters& to) const {
    const auto value = value_of(field.value);
    if (!value) {
      if (value.error().code != errc::missing_key)
        to.missing.push_back(fmt::format("{} ({})", key, value.error().message));
      else if (field.is_needed)
        to.missing.push_back(fmt::format("{} ({})", key, field.value));
      return;
    }
    if (*value < 0 || *value > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
      to.missing.push_back(fmt::format("{} ({} is {})", key, field.value, *value));
    else if (field.kind != field_kind::flag)
      to.values.push_back(integer_value(std::move(key), *value));
    else if (*value != 0)
      to.values.push_back(flag_value(std::move(key), true));
  }

  const json& config_;
  const model_architecture& model_;
  const named_sizes& numbers_;
};

// The recommended settings of a sampler, in the order of llama.cpp's converter.
struct sampling_field {
  std::string_view member, key;
  bool is_integer = false;  // int32
};
constexpr std::array sampling_fields{
    sampling_field{"top_k", "top_k", true},
    sampling_field{"top_p", "top_p"},
    sampling_field{"min_p", "min_p"},
    sampling_field{"xtc_probability", "xtc_probability"},
    sampling_field{"xtc_threshold", "xtc_threshold"},
    sampling_field{"temperature", "temp"},
    sampling_field{"penalty_last_n", "penalty_last_n", true},
    sampling_field{"penalty_repeat", "penalty_repeat"},
    sampling_field{"mirostat", "mirostat", true},
    sampling_field{"mirostat_tau", "mirostat_tau"},
    sampling_field{"mirostat_eta", "mirostat_eta"},
};

std::optional<model_value> sampling_value(const json& config, const sampling_field& field) {
  std::string key = fmt::format("general.sampling.{}", field.key);
  const json* const found = member_of(config, field.member);
  if (found == nullptr) return std::nullopt;
  if (!field.is_integer) {
    if (!found->is_number()) return std::nullopt;
    const double number = found->get<double>();
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()))) return std::nullopt;
    return fraction_value(std::move(key), number);
  }
  const auto number = integer_in(*found);
  if (!number || *number != static_cast<std::int32_t>(*number)) return std::nullopt;
  model_value made = integer_value(std::move(key), *number);
  made.type = "int32";
  return made;
}

}  // namespace

named_sizes numbers_of(const model_sizes& sizes) {
  constexpr std::string_view nested = "text_config.";
  named_sizes made = sizes.config;
  for (auto at = sizes.config.lower_bound(nested); at != sizes.config.end() && at->first.starts_with(nested); ++at)
    made[at->first.substr(nested.size())] = at->second;
  for (const auto& [name, value] : sizes.given) made[name] = value;
  return made;
}

std::string model_type_of(const std::string& config) {
  const json parsed = json::parse(config, nullptr, false);
  const json* const text = member_of(parsed, "text_config");
  const std::string* found = text == nullptr ? nullptr : text_member(*text, "model_type");
  if (found == nullptr) found = text_member(parsed, "model_type");
  return found == nullptr ? std::string() : *found;
}

hyper_parameters read_hyper_parameters(const std::string& config, const model_architecture& model,
                                       const named_sizes& numbers) {
  const json parsed = json::parse(config, nullptr, false);
  hyper_parameters made;
  made.values.push_back(text_value("general.architecture", model.name));
  field_reader reader(parsed, model, numbers);
  for (const model_field& field : model.fields) reader.read(field, made);
  rope_values rope = read_rope(config, model, numbers);
  for (model_value& one : rope.values) made.values.push_back(std::move(one));
  made.rotation = std::move(rope.missing);
  made.tensors = std::move(rope.tensors);
  return made;
}

result<std::vector<model_value>> read_sampling(const hf_folder& folder) {
  std::vector<model_value> made;
  SHARDMESH_TRY(const auto text, folder.read_json("generation_config.json"));
  if (!text) return made;
  const json parsed = json::parse(*text, nullptr, false);
  for (const sampling_field& field : sampling_fields)
    if (auto value = sampling_value(parsed, field)) made.push_back(*std::move(value));
  return made;
}

}  // namespace shardmesh::llama_cpp
