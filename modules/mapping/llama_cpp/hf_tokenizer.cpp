// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <mapping/llama_cpp/json_members.hpp>
#include <shardmesh/try.hpp>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :hf_tokenizer;

namespace shardmesh::llama_cpp {
namespace {

using detail::flag_member, detail::integer_in, detail::member_of, detail::text_member;
using json = nlohmann::json;

result<std::int64_t> token_id(const json* value, std::string_view token) {
  const auto id = value == nullptr ? std::nullopt : integer_in(*value);
  if (id && *id >= 0 && *id < most_tokens) return *id;
  return fail(errc::out_of_bounds, "a token has no valid id")
      .with_key(token.substr(0, 200))
      .with_values(fmt::format("0 to {}", most_tokens - 1), id ? fmt::format("{}", *id) : "another value");
}

// The left and the right token of a merge.
std::optional<std::pair<std::string, std::string>> merge_of(const json& value) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
  if (!value.is_string()) return std::nullopt;
  const std::string& both = value.get_ref<const std::string&>();
  // A token is not empty, and may itself begin with a space.
  const std::size_t space = both.find(' ', 1);
  if (space == std::string::npos) return std::nullopt;
  return std::pair(both.substr(0, space), both.substr(space + 1));
}

// A merge is one text in llama.cpp's files: spaces inside its tokens become the character by which GPT-2 shows them.
std::string without_spaces(const std::string& token) {
  std::string made;
  for (const char c : token)
    if (c == ' ')
      made += "\xC4\xA0";  // U+0120
    else
      made += c;
  return made;
}

// An expression with line breaks as \r and \n, which some files spell as the characters themselves.
std::string spelled(const std::string& expression) {
  std::string made;
  for (const char c : expression)
    if (c == '\r')
      made += "\\r";
    else if (c == '\n')
      made += "\\n";
    else
      made += c;
  return made;
}

// Adds a step of the pre-tokenizer, and those inside a sequence. The depth of the document is bounded.
void add_steps(const json& step, std::vector<std::string>& to) {
  const std::string* const type = text_member(step, "type");
  const std::string kind = type == nullptr ? "nothing" : *type;
  if (kind == "Sequence") {
    if (const json* const inner = member_of(step, "pretokenizers"); inner != nullptr && inner->is_array())
      for (const json& one : *inner) add_steps(one, to);
    return;
  }
  if (kind == "Split") {
    const json* const pattern = member_of(step, "pattern");
    const std::string* const expression = pattern == nullptr ? nullptr : text_member(*pattern, "Regex");
    const std::string* const behavior = text_member(step, "behavior");
    const bool is_inverted = flag_member(step, "invert").value_or(false);
    // An expression that matches every text gives the same pieces if what is between its matches is removed.
    const bool is_usual = behavior != nullptr && (is_inverted ? *behavior == "Removed" : *behavior == "Isolated");
    to.push_back(expression != nullptr && is_usual ? "split " + spelled(*expression) : "another split");
    return;
  }
  if (kind == "ByteLevel" && !flag_member(step, "add_prefix_space").value_or(true)) {
    to.push_back(flag_member(step, "use_regex").value_or(true) ? "bytes" : "raw bytes");
    return;
  }
  if (kind == "Digits" && flag_member(step, "individual_digits").value_or(false)) {
    to.push_back("digits");
    return;
  }
  to.push_back("another step: " + kind);
}

std::vector<template_item> template_of(const json& processor, std::string_view name) {
  std::vector<template_item> made;
  const json* const items = member_of(processor, name);
  if (items == nullptr || !items->is_array()) return made;
  for (const json& item : *items) {
    template_item one;
    const json* const special = member_of(item, "SpecialToken");
    const json* const sequence = member_of(item, "Sequence");
    one.is_special = special != nullptr;
    const json* const held = special != nullptr ? special : sequence;
    if (const std::string* const id = held == nullptr ? nullptr : text_member(*held, "id")) one.id = *id;
    made.push_back(std::move(one));
  }
  return made;
}

class tokenizer_reader {
 public:
  explicit tokenizer_reader(const json& document) : document_(document) {}

  result<hf_tokenizer> read() && {
    const json* const model = member_of(document_, "model");
    if (model == nullptr || !model->is_object()) return fail(errc::bad_format, "the tokenizer has no model");
    const std::string* const type = text_member(*model, "type");
    if (type != nullptr && *type != "BPE")
      return fail(errc::unsupported, "the tokenizer is of another kind").with_values("BPE", type->substr(0, 80));
    SHARDMESH_TRY(read_vocabulary(*model));
    SHARDMESH_TRY(read_merges(*model));
    SHARDMESH_TRY(read_added());
    made_.falls_back_to_bytes = flag_member(*model, "byte_fallback").value_or(false);
    made_.ignores_merges = flag_member(*model, "ignore_merges").value_or(false);
    if (const std::string* const unknown = text_member(*model, "unk_token")) made_.unknown = *unknown;
    if (const json* const steps = member_of(document_, "pre_tokenizer"); steps != nullptr && steps->is_object())
      add_steps(*steps, made_.pre_tokenizer);
    read_template();
    return std::move(made_);
  }

 private:
  result<void> read_vocabulary(const json& model) {
    const json* const vocabulary = member_of(model, "vocab");
    if (vocabulary == nullptr || !vocabulary->is_object() || vocabulary->empty())
      return fail(errc::bad_format, "the tokenizer has no vocabulary");
    for (const auto& [token, value] : vocabulary->items()) {
      SHARDMESH_TRY(const std::int64_t id, token_id(&value, token));
      const auto [there, is_new] = made_.vocabulary.emplace(id, token);
      if (!is_new)
        return fail(errc::duplicate_key, "two tokens have the same id")
            .with_key(token.substr(0, 200))
            .with_values("one token for each id", fmt::format("{}, also of '{}'", id, there->second.substr(0, 200)));
    }
    return {};
  }

  result<void> read_merges(const json& model) {
    const json* const merges = member_of(model, "merges");
    if (merges == nullptr || !merges->is_array()) return fail(errc::bad_format, "the tokenizer has no merges");
    for (const json& one : *merges) {
      auto merge = merge_of(one);
      if (!merge)
        return fail(errc::bad_format, "a merge does not have two tokens")
            .with_values("two texts, or a text with a space", one.is_string() ? "another text" : "another value");
      made_.merges.push_back(without_spaces(merge->first) + " " + without_spaces(merge->second));
      made_.merged.push_back(std::move(merge->first) + merge->second);
    }
    return {};
  }

  result<void> read_added() {
    const json* const added = member_of(document_, "added_tokens");
    if (added == nullptr || !added->is_array()) return {};
    std::map<std::int64_t, std::string> contents;
    for (const json& one : *added) {
      const std::string* const content = text_member(one, "content");
      if (content == nullptr) return fail(errc::bad_format, "an added token has no content");
      SHARDMESH_TRY(const std::int64_t id, token_id(member_of(one, "id"), *content));
      const auto [there, is_new] = contents.emplace(id, *content);
      const auto trained = made_.vocabulary.find(id);
      const bool differs = trained != made_.vocabulary.end() && trained->second != *content;
      if (!is_new || differs)
        return fail(errc::duplicate_key, "an added token has the id of another token")
            .with_key(content->substr(0, 200))
            .with_values("one token for each id",
                         fmt::format("{}, also of '{}'", id, (differs ? trained : there)->second.substr(0, 200)));
      made_.added.push_back({id, *content, flag_member(one, "special").value_or(false)});
    }
    return {};
  }

  void read_template() {
    const json* const processor = member_of(document_, "post_processor");
    if (processor == nullptr || !processor->is_object()) return;
    const json* const several = member_of(*processor, "processors");
    if (several == nullptr || !several->is_array()) return read_processor(*processor);
    for (const json& one : *several) read_processor(one);
  }

  void read_processor(const json& processor) {
    const std::string* const type = text_member(processor, "type");
    if (type == nullptr) return;
    made_.is_roberta |= *type == "RobertaProcessing";
    if (*type != "TemplateProcessing") return;
    made_.single = template_of(processor, "single");
    made_.pair = template_of(processor, "pair");
  }

  const json& document_;
  hf_tokenizer made_;
};

}  // namespace

result<hf_tokenizer> read_tokenizer(const std::string& text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return fail(errc::bad_format, "the tokenizer is not a JSON object");
  return tokenizer_reader(document).read();
}

}  // namespace shardmesh::llama_cpp
