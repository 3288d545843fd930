// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <mapping/llama_cpp/json_members.hpp>
#include <shardmesh/try.hpp>

#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :hf_folder;
import :hf_tokenizer;
import :tokenizer_settings;

namespace shardmesh::llama_cpp {
namespace {

using detail::flag_member, detail::integer_in, detail::member_of, detail::text_member;
using json = nlohmann::json;

constexpr const char* config_name = "tokenizer_config.json";
constexpr const char* added_name = "added_tokens.json";

// Null if the folder lacks the file.
result<std::unique_ptr<const json>> object_in(const hf_folder& folder, std::string_view name) {
  SHARDMESH_TRY(const auto text, folder.read_json(name));
  if (!text) return std::unique_ptr<const json>();
  auto parsed = std::make_unique<const json>(json::parse(*text, nullptr, false));
  if (!parsed->is_object())
    return fail(errc::bad_format, "the file is not a JSON object").with_file(folder.path_of(name));
  return parsed;
}

error wrong_id(std::string_view token, const hf_folder& folder, std::string_view file) {
  return fail(errc::out_of_bounds, "an added token has no valid id")
      .with_key(token.substr(0, 200))
      .with_file(folder.path_of(file))
      .with_values(fmt::format("0 to {}", most_tokens - 1), "another value");
}

bool is_valid(std::optional<std::int64_t> id) {
  return id && *id >= 0 && *id < most_tokens;
}

std::optional<std::int64_t> decimal(const std::string& text) {
  std::int64_t made = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), made);
  return code == std::errc{} && end == text.data() + text.size() ? std::optional(made) : std::nullopt;
}

// A special token is a text, or an object with its content.
const std::string* token_text(const json& config, const std::string& name) {
  if (const std::string* const text = text_member(config, name)) return text;
  const json* const object = member_of(config, name);
  return object == nullptr ? nullptr : text_member(*object, "content");
}

class settings_reader {
 public:
  explicit settings_reader(const hf_folder& folder) : folder_(folder) {}

  result<tokenizer_settings> read() && {
    SHARDMESH_TRY(const std::unique_ptr<const json> config, object_in(folder_, config_name));
    if (config) {
      made_.has_config = true;
      for (const char* const kind : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
        if (const std::string* const text = token_text(*config, fmt::format("{}_token", kind)))
          made_.texts[kind] = *text;
        if (const auto adds = flag_member(*config, fmt::format("add_{}_token", kind))) made_.adds[kind] = *adds;
      }
      made_.adds_prefix_space = flag_member(*config, "add_prefix_space");
      SHARDMESH_TRY(read_decoder(*config));
    }
    SHARDMESH_TRY(read_added());
    SHARDMESH_TRY(read_templates(config.get()));
    return std::move(made_);
  }

 private:
  result<void> read_decoder(const json& config) {
    const json* const decoder = member_of(config, "added_tokens_decoder");
    if (decoder == nullptr || !decoder->is_object()) return {};
    for (const auto& [number, token] : decoder->items()) {
      const std::string* const content = text_member(token, "content");
      const auto id = decimal(number);
      if (content == nullptr || !is_valid(id))
        return wrong_id(content == nullptr ? number : *content, folder_, config_name);
      made_.added.push_back({*id, *content, flag_member(token, "special").value_or(false)});
    }
    return {};
  }

  result<void> read_added() {
    SHARDMESH_TRY(const std::unique_ptr<const json> added, object_in(folder_, added_name));
    if (!added) return {};
    for (const auto& [token, number] : added->items()) {
      const auto id = integer_in(number);
      if (!is_valid(id)) return wrong_id(token, folder_, added_name);
      made_.named_only.push_back({*id, token, false});
    }
    return {};
  }

  // A template of tokenizer_config.json comes before those of other files.
  result<void> read_templates(const json* config) {
    if (const json* const stated = config == nullptr ? nullptr : member_of(*config, "chat_template")) {
      add_templates(*stated);
      return {};
    }
    constexpr const char* jinja = "chat_template.jinja";
    SHARDMESH_TRY(auto text, folder_.read(jinja));
    if (text) {
      if (!is_utf8(*text)) return fail(errc::bad_format, "the file is not UTF-8").with_file(folder_.path_of(jinja));
      made_.chat_templates.push_back({"default", *std::move(text)});
      return {};
    }
    SHARDMESH_TRY(const std::unique_ptr<const json> document, object_in(folder_, "chat_template.json"));
    if (!document) return {};
    if (const json* const stated = member_of(*document, "chat_template")) add_templates(*stated);
    return {};
  }

  void add_templates(const json& stated) {
    if (const std::string* const text = stated.get_ptr<const std::string*>()) {
      made_.chat_templates.push_back({"default", *text});
      return;
    }
    if (!stated.is_array()) return;
    for (const json& one : stated) {
      const std::string *const name = text_member(one, "name"), *const text = text_member(one, "template");
      if (name != nullptr && text != nullptr && !name->empty()) made_.chat_templates.push_back({*name, *text});
    }
  }

  const hf_folder& folder_;
  tokenizer_settings made_;
};

}  // namespace

result<tokenizer_settings> read_settings(const hf_folder& folder) {
  return settings_reader(folder).read();
}

}  // namespace shardmesh::llama_cpp
