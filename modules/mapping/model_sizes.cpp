// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>
module shardmesh.mapping;

namespace shardmesh {
namespace {

constexpr std::int64_t most_file_bytes = std::int64_t{16} << 20;
// Real configurations nest two or three objects. Deeper objects are ignored.
constexpr int most_levels = 8;
// Numbers with longer names, and those after so many, are not sizes of a model.
constexpr std::size_t most_name_bytes = 256, most_names = 65536;

void add_numbers(const nlohmann::json& object, const std::string& prefix, int level, named_sizes& to) {
  for (const auto& [key, value] : object.items()) {
    if (prefix.size() + key.size() > most_name_bytes || to.size() >= most_names) continue;
    const std::string name = prefix + key;
    if (value.is_boolean()) {
      to[name] = value.get<bool>() ? 1 : 0;
    } else if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      if (number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        to[name] = static_cast<std::int64_t>(number);
    } else if (value.is_number_integer()) {
      to[name] = value.get<std::int64_t>();
    } else if (value.is_object() && level < most_levels) {
      add_numbers(value, name + ".", level + 1, to);
    }
  }
}

// Adds Hugging Face's names of the sizes in a params.json of Meta or Mistral, by which the mappings know them.
void add_common_names(named_sizes& to) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> names{{{"dim", "hidden_size"},
                                                                             {"n_heads", "num_attention_heads"},
                                                                             {"n_kv_heads", "num_key_value_heads"},
                                                                             {"n_layers", "num_hidden_layers"},
                                                                             {"hidden_dim", "intermediate_size"}}};
  if (!to.contains("dim") || !to.contains("n_layers")) return;
  for (const auto& [own, common] : names)
    if (const auto found = to.find(own); found != to.end()) to.try_emplace(common, found->second);
  // Llama 1 and 2 state -1 and take the size from the tokenizer.
  if (const auto size = to.find("vocab_size"); size != to.end() && size->second < 0) to.erase(size);
}

// Adds a name of a text, a fraction, or a list. Numbers of objects come first, so that long lists cannot displace them.
void add_name(std::string name, std::int64_t value, named_sizes& to) {
  if (name.size() <= most_name_bytes && to.size() < most_names) to.emplace(std::move(name), value);
}

// Adds NAME.TEXT = 1, if the text can be a part of a name.
void add_text(const std::string& name, const std::string& text, named_sizes& to) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  });
  if (is_plain) add_name(fmt::format("{}.{}", name, text), 1, to);
}

// Adds NAME.fraction = 1 for a number such as 0.75.
void add_fraction(const std::string& name, double number, named_sizes& to) {
  if (std::isfinite(number) && number != std::floor(number)) add_name(name + ".fraction", 1, to);
}

void add_list(const nlohmann::json& list, const std::string& name, named_sizes& to) {
  add_name(name + ".length", static_cast<std::int64_t>(list.size()), to);
  for (std::size_t i = 0; i < list.size() && to.size() < most_names; ++i) {
    const nlohmann::json& element = list[i];
    const std::string here = fmt::format("{}[{}]", name, i);
    if (element.is_string()) add_text(here, element.get_ref<const std::string&>(), to);
    if (element.is_boolean()) add_name(here, element.get<bool>() ? 1 : 0, to);
    if (!element.is_number_integer()) continue;
    if (element.is_number_unsigned() &&
        element.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      continue;
    const auto number = element.get<std::int64_t>();
    add_name(here, number, to);
    add_name(fmt::format("{}.has[{}]", name, number), 1, to);
  }
}

void add_texts_and_lists(const nlohmann::json& object, const std::string& prefix, int level, named_sizes& to) {
  for (const auto& [key, value] : object.items()) {
    if (prefix.size() + key.size() > most_name_bytes || to.size() >= most_names) continue;
    const std::string name = prefix + key;
    if (value.is_string())
      add_text(name, value.get_ref<const std::string&>(), to);
    else if (value.is_number_float())
      add_fraction(name, value.get<double>(), to);
    else if (value.is_array())
      add_list(value, name, to);
    else if (value.is_object() && level < most_levels)
      add_texts_and_lists(value, name + ".", level + 1, to);
  }
}

}  // namespace

result<named_sizes> model_sizes::resolve(const mapping_rules& mapping,
                                         std::map<std::string, error, std::less<>>& missing) const {
  named_sizes made = config;
  for (const auto& [name, value] : given) made[name] = value;
  for (const auto* list : {&mapping.sizes, &mapping.captures})
    for (const named_expression& one : *list) {
      if (given.contains(one.name)) continue;
      auto value = one.value.evaluate(made);
      if (value) {
        made[one.name] = *value;
      } else if (value.error().code == errc::missing_key) {
        made.erase(one.name);
        missing.emplace(one.name, std::move(value).error());
      } else {
        error why = std::move(value).error();
        why.message = fmt::format("the size '{}': {}", one.name, why.message);
        return why.file.empty() ? std::move(why).with_file(mapping.file) : why;
      }
    }
  return made;
}

result<named_sizes> read_config(const std::filesystem::path& file) {
  SHARDMESH_TRY(const auto bytes, read_file(file, most_file_bytes));
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  // The callback drops values that nest deeper than any configuration, so no deep document is built.
  const nlohmann::json parsed = nlohmann::json::parse(
      text, text + bytes.size(),
      [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth <= most_levels + 1; }, false);
  if (parsed.is_discarded() || !parsed.is_object())
    return fail(errc::bad_format, "the configuration is not a JSON object").with_file(file.string());
  named_sizes made;
  add_numbers(parsed, "", 0, made);
  add_common_names(made);
  add_texts_and_lists(parsed, "", 0, made);
  return made;
}

}  // namespace shardmesh
