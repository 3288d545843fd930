// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :architectures;
import :hf_folder;
import :hf_tokenizer;
import :model_value;
import :pre_tokenizer;
import :sentencepiece;
import :special_tokens;
import :tokenizer_settings;
import :tokenizer_values;
import :vocabulary;

namespace shardmesh::llama_cpp {
namespace {

constexpr const char* json_name = "tokenizer.json";
constexpr const char* pieces_name = "tokenizer.model";

// A name as a part of a key.
std::string key_part(std::string_view name) {
  std::string made;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    made += is_plain ? c : '_';
  }
  return made;
}

class values_reader {
 public:
  values_reader(const hf_folder& folder, const model_architecture& model, const named_sizes& numbers,
                std::optional<std::int64_t> rows)
      : folder_(folder), model_(model), numbers_(numbers), rows_(rows) {}

  result<tokenizer_values> read() && {
    SHARDMESH_TRY(settings_, read_settings(folder_));
    SHARDMESH_TRY(read_json());
    if (model_.tokenizer == tokenizer_form::pieces) {
      SHARDMESH_TRY(const auto file, folder_.read(pieces_name));
      if (file) {
        SHARDMESH_TRY(add_pieces(*file));
        return finished();
      }
    }
    if (!tokenizer_)
      return fail(errc::missing_key, "the folder has no tokenizer")
          .with_file(folder_.path_of(json_name))
          .with_hint("save it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
    made_.files.emplace_back(json_name);
    SHARDMESH_TRY(add_tokenizer(*tokenizer_));
    return finished();
  }

 private:
  result<void> read_json() {
    SHARDMESH_TRY(const auto text, folder_.read_json(json_name));
    if (!text) return {};
    auto read = read_tokenizer(*text);
    if (!read) return std::move(read).error().with_file(folder_.path_of(json_name));
    tokenizer_ = *std::move(read);
    return {};
  }

  result<void> add_pieces(const std::string& file) {
    auto pieces = read_pieces(file);
    if (!pieces) return std::move(pieces).error().with_file(folder_.path_of(pieces_name));
    made_.files.emplace_back(pieces_name);
    // Later tokens replace earlier ones of the same id.
    std::vector<added_token> added = settings_.named_only;
    added.insert(added.end(), settings_.added.begin(), settings_.added.end());
    if (settings_.added.empty() && tokenizer_)
      added.insert(added.end(), tokenizer_->added.begin(), tokenizer_->added.end());
    add_vocabulary("llama", "default", piece_vocabulary(*std::move(pieces), added, rows_));
    return {};
  }

  result<void> add_tokenizer(const hf_tokenizer& tokenizer) {
    std::vector<added_token> further = settings_.added;
    further.insert(further.end(), settings_.named_only.begin(), settings_.named_only.end());
    if (tokenizer.falls_back_to_bytes) {
      if (model_.tokenizer == tokenizer_form::bytes)
        return fail(errc::unsupported, fmt::format("the architecture {} has no such tokenizer", model_.name))
            .with_file(folder_.path_of(json_name))
            .with_values("byte-level BPE", "BPE that falls back to bytes");
      auto made = fallback_vocabulary(tokenizer, further, rows_);
      if (!made) return std::move(made).error().with_file(folder_.path_of(json_name));
      add_vocabulary("llama", "default", *std::move(made));
      return {};
    }
    auto made = byte_vocabulary(tokenizer, further, rows_);
    if (!made) return std::move(made).error().with_file(folder_.path_of(json_name));
    const auto name = pre_tokenizer_name(tokenizer.pre_tokenizer, tokenizer.ignores_merges, model_.name);
    if (!name)
      made_.notes.push_back(fmt::format(
          "tokenizer.ggml.pre is missing: {}: the pre-tokenizer is not known, and llama.cpp would split texts in "
          "another way; find its name in llama.cpp, and set it with gguf-new-metadata --pre-tokenizer of the Python "
          "package gguf",
          folder_.path_of(json_name)));
    add_vocabulary("gpt2", name.value_or(""), *std::move(made));
    if (!tokenizer.merges.empty()) made_.values.push_back(texts_value("tokenizer.ggml.merges", tokenizer.merges));
    return {};
  }

  void add_vocabulary(std::string_view model, std::string_view pre, const vocabulary& tokens) {
    made_.values.push_back(text_value("tokenizer.ggml.model", model));
    if (!pre.empty()) made_.values.push_back(text_value("tokenizer.ggml.pre", pre));
    made_.values.push_back(texts_value("tokenizer.ggml.tokens", tokens.tokens));
    if (!tokens.scores.empty()) made_.values.push_back(fractions_value("tokenizer.ggml.scores", tokens.scores));
    made_.values.push_back(integers_value("tokenizer.ggml.token_type", tokens.types));
    tokens_ = tokens.tokens;
    if (tokens.ignored > 0)
      made_.notes.push_back(fmt::format("{} of the tokenizer not used: the embedding has {} rows",
                                        detail::counted(tokens.ignored, "token"), tokens_.size()));
  }

  // Adds what does not depend on the kind of the tokenizer.
  tokenizer_values finished() {
    special_tokens special = find_special_tokens(tokenizer_ ? &*tokenizer_ : nullptr, settings_, numbers_, tokens_);
    for (model_value& one : special.values) made_.values.push_back(std::move(one));
    for (const std::string& one : special.missing) made_.notes.push_back(fmt::format("not written: {}", one));
    if (model_.is_gemma)
      made_.values.push_back(flag_value("tokenizer.ggml.add_space_prefix", false));
    else if (settings_.adds_prefix_space && model_.name == "llama")
      made_.values.push_back(flag_value("tokenizer.ggml.add_space_prefix", *settings_.adds_prefix_space));
    add_templates();
    if (settings_.has_config) made_.files.emplace_back("tokenizer_config.json");
    return std::move(made_);
  }

  void add_templates() {
    std::map<std::string, std::string> others;
    const std::string* usual = nullptr;
    for (const chat_template& one : settings_.chat_templates)
      if (one.name == "default")
        usual = &one.text;
      else
        others[key_part(one.name)] = one.text;
    std::vector<std::string> names;
    for (const auto& [name, text] : others) {
      made_.values.push_back(text_value(fmt::format("tokenizer.chat_template.{}", name), text));
      names.push_back(name);
    }
    if (!names.empty()) made_.values.push_back(texts_value("tokenizer.chat_templates", names));
    if (usual != nullptr) made_.values.push_back(text_value("tokenizer.chat_template", *usual));
  }

  const hf_folder& folder_;
  const model_architecture& model_;
  const named_sizes& numbers_;
  std::optional<std::int64_t> rows_;
  tokenizer_settings settings_;
  std::optional<hf_tokenizer> tokenizer_;
  std::vector<std::string> tokens_;
  tokenizer_values made_;
};

}  // namespace

result<tokenizer_values> read_tokenizer_values(const hf_folder& folder, const model_architecture& model,
                                               const named_sizes& numbers, std::optional<std::int64_t> rows) {
  return values_reader(folder, model, numbers, rows).read();
}

}  // namespace shardmesh::llama_cpp
