// SPDX-License-Identifier: Apache-2.0
// Source: the expressions are those of the tokenizer.json of each model; llama.cpp's vocabulary states the same ones
// for the name.
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.mapping;

import :pre_tokenizer;

namespace shardmesh::llama_cpp {
namespace {

constexpr std::string_view llama3 = R"re(split (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)re"
                                    R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view qwen2 = R"re(split (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)re"
                                   R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view gpt4o =
    R"re(split [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view tekken =
    R"re(split [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)re"
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view deepseek_words =
    R"re(split [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)re"
    R"re([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

struct known_pre_tokenizer {
  std::string_view name;
  std::array<std::string_view, 6> steps;  // empty ones at the end do not count
  bool ignores_merges = false;            // the tokenizer must; otherwise it may
  std::string_view architecture = {};     // the name is for this one only
};

// The first row that fits decides. Rows with equal steps differ only in their name, or in ignoring merges.
constexpr std::array table{
    known_pre_tokenizer{"llama-bpe", {llama3, "raw bytes"}, true},
    known_pre_tokenizer{"dbrx", {llama3, "raw bytes"}},
    known_pre_tokenizer{"qwen2", {qwen2, "raw bytes"}},
    known_pre_tokenizer{"llama4", {gpt4o, "raw bytes"}, false, "llama4"},
    known_pre_tokenizer{"gpt-4o", {gpt4o, "raw bytes"}},
    known_pre_tokenizer{"tekken", {tekken, "raw bytes"}},
    known_pre_tokenizer{"deepseek-v3",
                        {R"(split \p{N}{1,3})", "split [一-龥぀-ゟ゠-ヿ]+", deepseek_words, "raw bytes"}},
    known_pre_tokenizer{"deepseek-coder",
                        {R"(split [\r\n])", R"(split \s?\p{L}+)", R"(split \s?\p{P}+)",
                         "split [一-龥ࠀ-一가-퟿]+", "digits", "raw bytes"}},
    known_pre_tokenizer{"smollm", {"digits", "bytes"}},
    known_pre_tokenizer{"gpt-2", {"bytes"}},
};

bool fits(const known_pre_tokenizer& known, const std::vector<std::string>& steps) {
  const auto count = static_cast<std::size_t>(std::find(known.steps.begin(), known.steps.end(), std::string_view()) -
                                              known.steps.begin());
  return count == steps.size() && std::equal(steps.begin(), steps.end(), known.steps.begin());
}

}  // namespace

std::optional<std::string_view> pre_tokenizer_name(const std::vector<std::string>& steps, bool ignores_merges,
                                                   std::string_view architecture) {
  for (const known_pre_tokenizer& known : table) {
    if (known.ignores_merges && !ignores_merges) continue;
    if (!known.architecture.empty() && known.architecture != architecture) continue;
    if (fits(known, steps)) return known.name;
  }
  return std::nullopt;
}

}  // namespace shardmesh::llama_cpp
