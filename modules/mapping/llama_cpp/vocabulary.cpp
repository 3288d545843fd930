// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :hf_tokenizer;
import :sentencepiece;
import :vocabulary;

namespace shardmesh::llama_cpp {
namespace {

// The scores of llama.cpp's converter: tokens that no merge makes, and ids without a token.
constexpr float added_score = -1000, unused_score = -10000;

// Some tokenizers do not mark these tokens as special.
bool looks_special(std::string_view token) {
  const auto between = [&](std::string_view begin, std::string_view end) {
    return token.size() >= begin.size() + end.size() && token.starts_with(begin) && token.ends_with(end);
  };
  return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" || between("<|", "|>") ||
         between("<\xEF\xBD\x9C", "\xEF\xBD\x9C>") ||  // U+FF5C, a wide bar
         between("<unused", ">");
}

// Replaces SentencePiece's sign for a space, U+2581: llama.cpp compares such tokens with the text itself.
std::string with_spaces(std::string_view token) {
  constexpr std::string_view sign = "\xE2\x96\x81";
  std::string made;
  for (std::size_t at = 0; at < token.size();)
    if (token.substr(at).starts_with(sign)) {
      made += ' ';
      at += sign.size();
    } else {
      made += token[at++];
    }
  return made;
}

// "<0x0A>"
bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         std::isxdigit(static_cast<unsigned char>(token[3])) != 0 &&
         std::isxdigit(static_cast<unsigned char>(token[4])) != 0;
}

// Fills every id with a token that is never used.
vocabulary unused_tokens(std::int64_t count, bool has_scores) {
  vocabulary made;
  for (std::int64_t id = 0; id < count; ++id) made.tokens.push_back(fmt::format("[PAD{}]", id));
  made.types.assign(made.tokens.size(), static_cast<std::int32_t>(token_type::unused));
  if (has_scores) made.scores.assign(made.tokens.size(), unused_score);
  return made;
}

void set_token(vocabulary& to, std::int64_t id, std::string text, token_type type, float score) {
  const auto at = static_cast<std::size_t>(id);
  to.tokens[at] = std::move(text);
  to.types[at] = static_cast<std::int32_t>(type);
  if (!to.scores.empty()) to.scores[at] = score;
}

void set_added(vocabulary& to, const added_token& token) {
  const bool is_control = token.is_special || looks_special(token.content);
  set_token(to, token.id, is_control ? token.content : with_spaces(token.content),
            is_control ? token_type::control : token_type::user_defined, added_score);
}

// The added tokens of tokenizer.json, and those of other files whose ids are new.
std::vector<added_token> all_added(const hf_tokenizer& tokenizer, std::span<const added_token> further) {
  std::vector<added_token> made = tokenizer.added;
  std::unordered_set<std::int64_t> known;
  for (const added_token& token : made) known.insert(token.id);
  for (const added_token& token : further)
    if (!tokenizer.vocabulary.contains(token.id) && known.insert(token.id).second) made.push_back(token);
  return made;
}

// The number of ids. An error names a token beyond the rows.
result<std::int64_t> count_of(const hf_tokenizer& tokenizer, std::span<const added_token> added,
                              std::optional<std::int64_t> rows) {
  std::int64_t largest = tokenizer.vocabulary.empty() ? -1 : tokenizer.vocabulary.rbegin()->first;
  std::string_view token = tokenizer.vocabulary.empty() ? "" : std::string_view(tokenizer.vocabulary.rbegin()->second);
  for (const added_token& one : added)
    if (one.id > largest) largest = one.id, token = one.content;
  if (!rows) return largest + 1;
  if (largest < *rows) return *rows;
  return fail(errc::out_of_bounds, "a token has no row in the embedding")
      .with_key(token.substr(0, 200))
      .with_values(fmt::format("an id below {}, the rows of token_embd.weight", *rows), fmt::format("{}", largest))
      .with_hint("use the tokenizer with which the model was saved");
}

}  // namespace

result<vocabulary> byte_vocabulary(const hf_tokenizer& tokenizer, std::span<const added_token> further,
                                   std::optional<std::int64_t> rows) {
  const std::vector<added_token> added = all_added(tokenizer, further);
  SHARDMESH_TRY(const std::int64_t count, count_of(tokenizer, added, rows));
  vocabulary made = unused_tokens(count, false);
  for (const auto& [id, token] : tokenizer.vocabulary) set_token(made, id, token, token_type::normal, 0);
  for (const added_token& token : added) set_added(made, token);
  return made;
}

result<vocabulary> fallback_vocabulary(const hf_tokenizer& tokenizer, std::span<const added_token> further,
                                       std::optional<std::int64_t> rows) {
  const std::vector<added_token> added = all_added(tokenizer, further);
  SHARDMESH_TRY(const std::int64_t count, count_of(tokenizer, added, rows));
  vocabulary made = unused_tokens(count, true);
  std::unordered_map<std::string_view, std::size_t> ranks;  // of the first merge that makes a token
  for (std::size_t i = 0; i < tokenizer.merged.size(); ++i) ranks.emplace(tokenizer.merged[i], i);
  const float last = 0 - static_cast<float>(tokenizer.merged.size());
  for (const auto& [id, token] : tokenizer.vocabulary) {
    const auto rank = ranks.find(token);
    set_token(made, id, token, is_byte_token(token) ? token_type::byte : token_type::normal,
              rank == ranks.end() ? last : 0 - static_cast<float>(rank->second));
  }
  for (const added_token& token : added) {
    set_added(made, token);
    if (!tokenizer.unknown.empty() && token.content == tokenizer.unknown)
      made.types[static_cast<std::size_t>(token.id)] = static_cast<std::int32_t>(token_type::unknown);
  }
  return made;
}

vocabulary piece_vocabulary(std::vector<piece> pieces, std::span<const added_token> added,
                            std::optional<std::int64_t> rows) {
  auto count = static_cast<std::int64_t>(pieces.size());
  for (const added_token& token : added) count = std::max(count, token.id + 1);
  vocabulary made = unused_tokens(rows.value_or(count), true);
  const auto most = static_cast<std::int64_t>(made.tokens.size());
  std::int64_t id = 0;
  for (piece& one : pieces) {
    // The converter, too, makes normal tokens of pieces that the training was told to keep.
    const token_type type =
        one.type == piece_type::user_defined ? token_type::normal : static_cast<token_type>(one.type);
    if (id < most)
      set_token(made, id, std::move(one.text), type, one.score);
    else
      ++made.ignored;
    ++id;
  }
  for (const added_token& token : added)
    if (token.id < most)
      set_added(made, token);
    else if (token.id >= id)
      ++made.ignored;
  return made;
}

}  // namespace shardmesh::llama_cpp
