// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :hf_tokenizer;
import :model_value;
import :special_tokens;
import :tokenizer_settings;

namespace shardmesh::llama_cpp {
namespace {

// The kinds of special tokens, and the keys of their ids. The spelling of the separator's key is llama.cpp's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> id_keys{{{"bos", "bos_token_id"},
                                                                                {"eos", "eos_token_id"},
                                                                                {"unk", "unknown_token_id"},
                                                                                {"sep", "seperator_token_id"},
                                                                                {"pad", "padding_token_id"},
                                                                                {"mask", "mask_token_id"},
                                                                                {"eot", "eot_token_id"}}};
// The kinds whose addition to texts can be stated.
constexpr std::array<std::string_view, 3> added_kinds{"bos", "eos", "sep"};

class special_finder {
 public:
  special_finder(const hf_tokenizer* tokenizer, const tokenizer_settings& settings, std::span<const std::string> tokens)
      : tokenizer_(tokenizer), has_config_(settings.has_config), tokens_(tokens), texts_(settings.texts) {
    if (tokenizer != nullptr) read_template(*tokenizer);
    for (const auto& [kind, adds] : settings.adds) adds_[kind] = adds;
  }

  special_tokens find(const named_sizes& numbers) {
    const auto token_count = static_cast<std::int64_t>(tokens_.size());
    special_tokens made;
    for (const auto& [kind, key] : id_keys) {
      const auto id = id_of(kind, numbers);
      if (!id) continue;
      std::string whole = fmt::format("tokenizer.ggml.{}", key);
      if (*id >= 0 && *id < token_count)
        made.values.push_back(integer_value(std::move(whole), *id));
      else
        made.missing.push_back(fmt::format("{} (no token has the id {})", whole, *id));
    }
    for (const std::string_view kind : added_kinds)
      if (const auto found = adds_.find(kind); found != adds_.end())
        made.values.push_back(flag_value(fmt::format("tokenizer.ggml.add_{}_token", kind), found->second));
    return made;
  }

 private:
  std::string text_of(std::string_view kind) const {
    const auto found = texts_.find(kind);
    return found == texts_.end() ? std::string() : found->second;
  }

  std::optional<std::int64_t> id_of(std::string_view kind, const named_sizes& numbers) const {
    if (has_config_ && tokenizer_ != nullptr)
      if (const std::string text = text_of(kind); !text.empty())
        for (const added_token& token : tokenizer_->added)
          if (token.content == text) return token.id;
    if (const auto found = numbers.find(fmt::format("{}_token_id", kind)); found != numbers.end()) return found->second;
    // Without tokenizer.json, the converter leaves these ids to llama.cpp, which takes those of Llama 2.
    const std::string text = text_of(kind);
    const auto token = text.empty() ? tokens_.end() : std::ranges::find(tokens_, text);
    return token == tokens_.end() ? std::nullopt : std::optional<std::int64_t>(token - tokens_.begin());
  }

  // Reads which special tokens the template puts around a text. Unusual templates state nothing.
  void read_template(const hf_tokenizer& tokenizer) {
    if (has_config_) {
      if (text_of("bos").empty() && !text_of("cls").empty()) texts_["bos"] = text_of("cls");
      if (text_of("eos").empty() && !text_of("sep").empty()) texts_["eos"] = text_of("sep");
    }
    if (tokenizer.is_roberta)
      for (const std::string_view kind : added_kinds) adds_[std::string(kind)] = true;
    const std::vector<template_item>& single = tokenizer.single;
    std::string first, last;
    if (single.size() > 1) {
      if (single.front().is_special) first = single.front().id;
      if (single.back().is_special) last = single.back().id;
    }
    if (!first.empty()) {
      if (!has_config_) texts_["bos"] = first;
      adds_["bos"] = first == text_of("bos") || first == text_of("cls");
    }
    if (!last.empty()) {
      // A model may end its turns with another token than the one that the template adds.
      if (has_config_ && last != text_of("eos") && !text_of("eos").empty()) texts_["eot"] = text_of("eos");
      texts_["eos"] = last;
      adds_["eos"] = true;
    }
    read_pair(tokenizer.pair, first, last);
  }

  // Reads whether a separator is between two texts: of [first] A [separators] B [last], the part between A and B.
  void read_pair(const std::vector<template_item>& pair, const std::string& first, const std::string& last) {
    std::span<const template_item> inner(pair);
    if (inner.empty()) return;
    if (!first.empty() && inner.front().id == first) inner = inner.subspan(1);
    if (!last.empty() && !inner.empty() && inner.back().id == last) inner = inner.first(inner.size() - 1);
    if (inner.size() < 3 || inner.front().id != "A" || inner.back().id != "B") return;
    inner = inner.subspan(1, inner.size() - 2);
    const auto separates = [&](const template_item& item) {
      return item.is_special && (item.id == text_of("sep") || item.id == text_of("eos"));
    };
    adds_["sep"] = (separates(inner[0]) && last.empty()) || (inner.size() == 2 && separates(inner[1]));
  }

  const hf_tokenizer* tokenizer_;
  bool has_config_;
  std::span<const std::string> tokens_;
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, bool, std::less<>> adds_;
};

}  // namespace

special_tokens find_special_tokens(const hf_tokenizer* tokenizer, const tokenizer_settings& settings,
                                   const named_sizes& numbers, std::span<const std::string> tokens) {
  return special_finder(tokenizer, settings, tokens).find(numbers);
}

}  // namespace shardmesh::llama_cpp
