// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.gguf;

import :file_plan;
import :header;
import :metadata_encoding;

namespace shardmesh::gguf {
namespace {

constexpr std::string_view quantization_version_key = "general.quantization_version";
constexpr std::uint32_t quantization_version = 2;  // GGML_QNT_VERSION

// The types that the text "gguf.value_types" states, by key. A damaged text states none.
std::map<std::string, std::string> types_in(const catalog* carried) {
  std::map<std::string, std::string> types;
  if (carried == nullptr) return types;
  for (const file_text& text : carried->texts) {
    if (text.key != value_types_key || !check_json_depth(text.value, 8)) continue;
    const auto parsed = nlohmann::json::parse(text.value, nullptr, false);
    if (!parsed.is_object()) continue;
    for (const auto& [key, type] : parsed.items())
      if (type.is_string()) types.emplace(key, type.get<std::string>());
  }
  return types;
}

// Returns false for a key that a metadata value cannot have, or that has a meaning of its own here.
bool can_be_key(std::string_view key) {
  return !key.empty() && static_cast<std::int64_t>(key.size()) <= max_key_bytes && is_utf8(key) && key != objects_key &&
         !key.starts_with(text_prefix);
}

result<std::int64_t> alignment_of(const output_object& object) {
  SHARDMESH_TRY(const std::string described, object.json());
  const auto whole = nlohmann::json::parse(described, nullptr, false);
  const bool is_number = whole.is_object() && whole.contains("value") && whole["value"].is_number_unsigned();
  const std::uint64_t value = is_number ? whole["value"].get<std::uint64_t>() : 0;
  // The description is padded to the alignment, and the padding is written. No real file needs more than this.
  constexpr std::uint64_t most = std::uint64_t{1} << 20;
  if (is_alignment(value) && value <= most) return static_cast<std::int64_t>(value);
  return fail(errc::invalid_argument, "the alignment is invalid")
      .with_key(object.key)
      .with_values(fmt::format("a power of two from 8 to {}", most),
                   is_number ? fmt::format("{}", value) : "another value")
      .with_hint("leave the value out, for an alignment of 32");
}

class metadata_planner {
 public:
  explicit metadata_planner(const catalog* carried) : carried_(carried), types_(types_in(carried)) {}

  result<planned_metadata> plan(std::span<const output_object> objects, bool has_blocks) {
    for (const output_object& object : objects) SHARDMESH_TRY(add_object(object));
    if (has_blocks && !has_quantization_version_) {
      append_entry(made_.values, quantization_version_key, quantization_version);
      ++made_.count;
    }
    add_texts();
    SHARDMESH_TRY(add_document());
    if (!has_architecture_)
      made_.notes.push_back(fmt::format("the file has no {}: llama.cpp cannot load it as a model", architecture_key));
    return std::move(made_);
  }

 private:
  result<void> add_object(const output_object& object) {
    if (object.key == alignment_key) {
      SHARDMESH_TRY(made_.alignment, alignment_of(object));
    }
    if (!can_be_key(object.key)) return add_other(object), result<void>{};
    auto described = object.json();
    if (!described) return std::move(described).error().with_key(object.key);
    const auto type = types_.find(object.key);
    // ggml reads the alignment only as uint32.
    const bool has_type = type != types_.end() && object.key != alignment_key;
    auto value = encode_value(*described, has_type ? std::string_view(type->second) : std::string_view());
    if (!value) return std::move(value).error().with_key(object.key);
    if (!*value) return add_other(object), result<void>{};
    has_architecture_ |= object.key == architecture_key;
    has_quantization_version_ |= object.key == quantization_version_key;
    append_text(made_.values, object.key);
    made_.values += **value;
    ++made_.count;
    return {};
  }

  // GGUF keeps no paths, so none is kept here either: a path beside tensors without one would nest only a part of what
  // was a list.
  void add_other(output_object object) {
    object.where = shardmesh::path{object.key};
    others_.push_back(std::move(object));
  }

  void add_texts() {
    if (carried_ == nullptr) return;
    text_merge merge(*carried_);
    for (const auto& [key, text] : merge.of_all()) {
      if (key == value_types_key || (key == "format" && text == "pt")) continue;
      const std::string name = fmt::format("{}{}", text_prefix, key);
      if (static_cast<std::int64_t>(name.size()) > max_key_bytes) {
        made_.notes.push_back(fmt::format("not kept: a text whose name is longer than the {} bytes of a GGUF key: {}",
                                          max_key_bytes, shortened(escaped(key), 40)));
        continue;
      }
      append_entry(made_.values, name, text);
      ++made_.count;
    }
    for (std::string& note : merge.notes()) made_.notes.push_back(std::move(note));
  }

  // Adds the objects that are not values of metadata.
  result<void> add_document() {
    if (others_.empty()) return {};
    if (auto problems = safetensors::problems_of_names(others_); !problems.empty())
      return fail_all(std::move(problems));
    SHARDMESH_TRY(const std::string document, safetensors::format_objects(others_, {}));
    SHARDMESH_TRY(const auto incomplete, safetensors::objects_not_held_whole(others_));
    append_entry(made_.values, objects_key, document);
    ++made_.count;
    made_.notes.insert(made_.notes.end(), incomplete.begin(), incomplete.end());
    made_.notes.push_back(fmt::format("{} in the string {}, since no metadata value can hold them",
                                      detail::counted(others_.size(), "object is", "objects are"), objects_key));
    return {};
  }

  const catalog* carried_;
  std::map<std::string, std::string> types_;
  planned_metadata made_;
  std::vector<output_object> others_;
  bool has_architecture_ = false, has_quantization_version_ = false;
};

}  // namespace

result<planned_metadata> plan_metadata(std::span<const output_object> objects, const catalog* carried,
                                       bool has_blocks) {
  return metadata_planner(carried).plan(objects, has_blocks);
}

}  // namespace shardmesh::gguf
