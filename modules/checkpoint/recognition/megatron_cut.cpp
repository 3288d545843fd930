// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.checkpoint;

import :megatron_cut;

namespace shardmesh {
namespace {

struct known_cut {
  std::string_view name;  // the end of the tensor's name
  megatron_cut cut;
};

constexpr auto known_cuts = std::to_array<known_cut>({
    {"embedding.word_embeddings.weight", megatron_cut::rows},
    {"output_layer.weight", megatron_cut::rows},
    {"linear_qkv.weight", megatron_cut::rows},
    {"linear_qkv.bias", megatron_cut::rows},
    {"linear_proj.weight", megatron_cut::columns},
    {"core_attention.softmax_offset", megatron_cut::rows},
    {"linear_fc1.weight", megatron_cut::gates},
    {"linear_fc1.bias", megatron_cut::gates},
    {"linear_fc2.weight", megatron_cut::columns},
    // Multi-latent attention
    {"linear_q_proj.weight", megatron_cut::rows},
    {"linear_q_up_proj.weight", megatron_cut::rows},
    {"linear_kv_up_proj.weight", megatron_cut::rows},
    // Multi-token prediction
    {"eh_proj.weight", megatron_cut::rows},
    // Experts of GroupedMLP: all of a layer in one matrix
    {"experts.weight1", megatron_cut::unknown},
    {"experts.weight2", megatron_cut::unknown},
});

constexpr std::string_view layers = "decoder.layers.";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes a number of at most nine digits from the front of a text.
std::optional<std::int64_t> take_number(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const auto digits = static_cast<std::size_t>(end - text.begin());
  if (digits == 0 || digits > 9 || (digits > 1 && text.front() == '0')) return std::nullopt;
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  return number;
}

// True when `name` is the key, or its last components.
bool is_end_of(std::string_view name, std::string_view key) {
  return key.ends_with(name) && (key.size() == name.size() || key[key.size() - name.size() - 1] == '.');
}

// "linear_fc1.weight" of "linear_fc1.weight12", the name of TEGroupedMLP's expert 12.
std::string_view without_expert(std::string_view name) {
  std::string_view shorter = name;
  while (!shorter.empty() && is_digit(shorter.back())) shorter.remove_suffix(1);
  const bool is_numbered = shorter.ends_with(".weight") || shorter.ends_with(".bias");
  return is_numbered && is_of_experts(name) ? shorter : name;
}

}  // namespace

std::optional<megatron_key> parse_megatron_key(std::string_view key) {
  constexpr std::string_view root = "model";
  if (!key.starts_with(root)) return std::nullopt;
  key.remove_prefix(root.size());
  megatron_key made;
  if (!key.starts_with('.')) {
    const auto chunk = take_number(key);
    if (!chunk || !key.starts_with('.')) return std::nullopt;
    made.chunk = *chunk;
  }
  key.remove_prefix(1);
  made.name = std::string(key);
  if (!key.starts_with(layers)) return made;
  key.remove_prefix(layers.size());
  const auto layer = take_number(key);
  if (!layer || !key.starts_with('.')) return made;
  made.layer = layer;
  made.in_layer = std::string(key.substr(1));
  return made;
}

std::string whole_name(const megatron_key& key, std::int64_t first) {
  return key.layer ? fmt::format("{}{}.{}", layers, first + *key.layer, key.in_layer) : key.name;
}

megatron_cut megatron_cut_of(std::string_view name) {
  if (name.starts_with("language_model.")) return megatron_cut::unknown;  // models from before megatron-core
  const auto find = [](std::string_view text) {
    return std::find_if(known_cuts.begin(), known_cuts.end(),
                        [&](const known_cut& one) { return is_end_of(one.name, text); });
  };
  auto known = find(name);
  if (known == known_cuts.end()) known = find(without_expert(name));
  return known == known_cuts.end() ? megatron_cut::copy : known->cut;
}

std::string second_layer_of(std::string_view name) {
  constexpr std::string_view first = "linear_fc1.", bias = "linear_fc2.bias";
  std::string made(name);
  const std::size_t at = made.rfind(first);
  if (at == std::string::npos) return made;
  made[at + first.size() - 2] = '2';
  if (made.compare(at, bias.size(), bias) == 0) made.replace(at, bias.size(), "linear_fc2.weight");
  return made;
}

bool is_of_experts(std::string_view name) {
  return name.find(".experts.") != std::string_view::npos;
}

}  // namespace shardmesh
