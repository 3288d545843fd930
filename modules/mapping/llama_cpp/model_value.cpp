// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.torch_file;
import :model_value;

namespace shardmesh::llama_cpp {
namespace {

std::string fraction_json(float number) {
  return fmt::format("{{\"$float\":\"{}\"}}", torch_file::float_hex(static_cast<double>(number)));
}

// Returns a JSON list with the text that `element_json` makes of each element.
template <class Elements, class Function>
std::string list_json(const Elements& elements, Function element_json) {
  std::string made = "[";
  for (const auto& element : elements) {
    if (made.size() > 1) made += ',';
    made += element_json(element);
  }
  return made + "]";
}

}  // namespace

model_value integer_value(std::string key, std::int64_t number) {
  return {std::move(key), "int", fmt::format("{}", number), {}};
}

model_value fraction_value(std::string key, double number) {
  return {std::move(key), "float", fraction_json(static_cast<float>(number)), {}};
}

model_value flag_value(std::string key, bool flag) {
  return {std::move(key), "bool", flag ? "true" : "false", {}};
}

model_value text_value(std::string key, std::string_view text) {
  return {std::move(key), "str", json_quoted(text), {}};
}

model_value texts_value(std::string key, const std::vector<std::string>& texts) {
  return {std::move(key), "list", list_json(texts, [](const std::string& text) { return json_quoted(text); }), {}};
}

model_value integers_value(std::string key, const std::vector<std::int32_t>& numbers) {
  std::string json = list_json(numbers, [](std::int32_t number) { return fmt::format("{}", number); });
  return {std::move(key), "list", std::move(json), {}};
}

model_value fractions_value(std::string key, const std::vector<float>& numbers) {
  return {std::move(key), "list", list_json(numbers, [](float number) { return fraction_json(number); }), {}};
}

}  // namespace shardmesh::llama_cpp
