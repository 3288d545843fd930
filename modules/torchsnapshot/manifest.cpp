// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.torchsnapshot;

import shardmesh.torch_file;
import :manifest;
import :primitive_value;

namespace shardmesh::torchsnapshot {
namespace {

using json = nlohmann::ordered_json;

// Returns a member of an object; null for other values.
const json& member(const json& value, const char* key) {
  static const json none;
  if (!value.is_object()) return none;
  const auto found = value.find(key);
  return found == value.end() ? none : *found;
}

error odd(std::string_view what) {
  return fail(errc::bad_format, fmt::format("its entry in the manifest has no valid {}", what));
}

result<std::string> text_of(const json& value, const char* key) {
  const json& text = member(value, key);
  if (!text.is_string()) return odd(key);
  return text.get<std::string>();
}

result<extents> numbers_of(const json& value, const char* key) {
  const json& list = member(value, key);
  if (!list.is_array()) return odd(key);
  if (list.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("it has {} dimensions", list.size()))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", list.size()));
  extents numbers;
  for (const json& number : list) {
    // The parser stores every number without a sign as unsigned.
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > INT64_MAX) return odd(key);
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

result<payload> payload_of(const json& value, bool is_tensor) {
  payload made;
  SHARDMESH_TRY(made.location, text_of(value, "location"));
  SHARDMESH_TRY(made.serializer, text_of(value, "serializer"));
  if (!is_tensor) return made;
  SHARDMESH_TRY(made.dtype, text_of(value, "dtype"));
  SHARDMESH_TRY(made.shape, numbers_of(value, "shape"));
  if (member(value, "byte_range").is_null()) return made;
  SHARDMESH_TRY(const extents range, numbers_of(value, "byte_range"));
  if (range.rank() != 2 || range[0] > range[1]) return odd("byte_range");
  made.byte_range = {range[0], range[1]};
  return made;
}

result<std::vector<part>> parts_of(const json& value, const char* key) {
  const json& list = member(value, key);
  if (!list.is_array()) return odd(key);
  std::vector<part> parts;
  for (const json& one : list) {
    part made;
    SHARDMESH_TRY(made.where.offsets, numbers_of(one, "offsets"));
    SHARDMESH_TRY(made.where.sizes, numbers_of(one, "sizes"));
    if (made.where.offsets.rank() != made.where.sizes.rank()) return odd("offsets");
    SHARDMESH_TRY(made.stored, payload_of(member(one, "tensor"), true));
    parts.push_back(std::move(made));
  }
  return parts;
}

// Decodes "%2F" and "%25" in a step. Source: torchsnapshot.flatten, urllib.parse.unquote
std::string decoded(std::string_view step) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string text;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const bool is_code = step[i] == '%' && i + 2 < step.size() && digit(step[i + 1]) >= 0 && digit(step[i + 2]) >= 0;
    text += is_code ? static_cast<char>(16 * digit(step[i + 1]) + digit(step[i + 2])) : step[i];
    if (is_code) i += 2;
  }
  return text;
}

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = status == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

class manifest_reader {
 public:
  explicit manifest_reader(read_budget& budget) : budget_(budget) {}

  result<manifest> read(const json& document) {
    const json& world_size = member(document, "world_size");
    const json& entries = member(document, "manifest");
    const std::uint64_t ranks = world_size.is_number_unsigned() ? world_size.get<std::uint64_t>() : 0;
    if (ranks < 1 || ranks > INT32_MAX || !entries.is_object())
      return fail(errc::bad_format, "is not the manifest of a snapshot");
    made_.world_size = static_cast<std::int64_t>(ranks);
    note_containers(entries);
    for (const auto& [name, value] : entries.items()) {
      SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(sizeof(entry) + 4 * name.size())));
      if (auto added = add(name, value); !added) made_.problems.push_back(std::move(added).error().with_key(name));
    }
    return std::move(made_);
  }

 private:
  static bool is_container(std::string_view type) { return type == "dict" || type == "OrderedDict" || type == "list"; }

  void note_containers(const json& entries) {
    for (const auto& [name, value] : entries.items()) {
      if (member(value, "type") == "list") lists_.insert(name);
      for (const json& key : member(value, "keys"))
        if (key.is_number_float())
          have_large_.insert(name);
        else if (auto typed = typed_key(key))
          keys_[name].insert_or_assign(std::string(typed->name()), *typed);
      if (const std::size_t last = name.rfind('/'); last != std::string::npos) have_items_.insert(name.substr(0, last));
    }
  }

  // Returns a dict key that is not text. torchsnapshot accepts integers, and bools, which are integers in Python.
  static std::optional<path_key> typed_key(const json& key) {
    if (key.is_number_integer()) {
      const bool is_large = key.is_number_unsigned() && key.get<std::uint64_t>() > INT64_MAX;
      if (path_key small = path_key::of_integer(is_large ? 0 : key.get<std::int64_t>());
          !is_large && small.is_integer())
        return small;
      auto large = torch_file::key_of_json(key.dump(), fmt::format(R"({{"$int":"{}"}})", key.dump()));
      if (large) return *std::move(large);
    }
    if (!key.is_boolean()) return std::nullopt;
    auto made = torch_file::key_of_json(key.get<bool>() ? "True" : "False", key.dump());
    return made ? std::optional(*std::move(made)) : std::nullopt;
  }

  path_key key_of(const std::string& dict, const std::string& text) const {
    const bool is_large = have_large_.contains(dict) && text.size() > 18 &&
                          text.find_first_not_of("0123456789", text.starts_with('-') ? 1 : 0) == std::string::npos;
    if (is_large)
      if (auto large = torch_file::key_of_json(text, fmt::format(R"({{"$int":"{}"}})", text))) return *std::move(large);
    const auto known = keys_.find(dict);
    if (known == keys_.end()) return text;
    const auto typed = known->second.find(text);
    return typed == known->second.end() ? path_key(text) : typed->second;
  }

  // Returns the path after the rank. Steps into a list are indices.
  result<path> path_of(const std::string& name, std::size_t begin) const {
    path where;
    while (begin <= name.size()) {
      const std::size_t end = std::min(name.find('/', begin), name.size());
      const std::string step = name.substr(begin, end - begin);
      const std::string above = name.substr(0, begin - 1);
      const auto index = lists_.contains(above) ? number_of(step) : std::nullopt;
      if (index)
        where.push_back(*index);
      else
        where.push_back(key_of(above, decoded(step)));
      if (where.size() > 64) return fail(errc::bad_format, "its path has more than 64 steps");
      begin = end + 1;
    }
    return where;
  }

  result<void> add(const std::string& name, const json& value) {
    const std::size_t slash = name.find('/');
    const auto rank = number_of(std::string_view(name).substr(0, slash));
    if (slash == std::string::npos || !rank || *rank >= made_.world_size)
      return fail(errc::bad_format, "is not a path below one of the ranks")
          .with_values(fmt::format("ranks below {}", made_.world_size), name);
    SHARDMESH_TRY(const std::string type, text_of(value, "type"));
    if (is_container(type)) {
      const json& keys = member(value, "keys");  // a list without keys here has no items either
      const bool is_empty = type == "list" || (keys.is_array() && keys.empty());
      if (!is_empty || have_items_.contains(name)) return {};
    }
    entry made;
    made.rank = *rank;
    SHARDMESH_TRY(made.where, path_of(name, slash + 1));
    made.is_replicated = member(value, "replicated") == true;
    SHARDMESH_TRY(fill(made, type, value));
    SHARDMESH_TRY(budget_.build(static_cast<std::int64_t>(made.archive.size() + sizeof(part) * made.parts.size())));
    made_.entries.push_back(std::move(made));
    return {};
  }

  static result<void> fill(entry& made, const std::string& type, const json& value) {
    if (type == "Tensor") {
      made.kind = entry_kind::tensor;
      SHARDMESH_TRY(payload stored, payload_of(value, true));
      made.dtype = stored.dtype;
      made.shape = stored.shape;
      made.parts.push_back({box::whole(made.shape), std::move(stored)});
    } else if (type == "ChunkedTensor") {
      made.kind = entry_kind::chunked_tensor;
      SHARDMESH_TRY(made.dtype, text_of(value, "dtype"));
      SHARDMESH_TRY(made.shape, numbers_of(value, "shape"));
      SHARDMESH_TRY(made.parts, parts_of(value, "chunks"));
    } else if (type == "ShardedTensor") {
      made.kind = entry_kind::sharded_tensor;
      SHARDMESH_TRY(made.parts, parts_of(value, "shards"));
      if (!made.parts.empty()) made.dtype = made.parts.front().stored.dtype;
    } else if (type == "object") {
      made.kind = entry_kind::object;
      SHARDMESH_TRY(payload stored, payload_of(value, false));
      made.parts.push_back({{}, std::move(stored)});
    } else if (is_container(type)) {
      made.kind = entry_kind::empty_container;
      SHARDMESH_TRY(made.archive, torch_file::archive_from_json(type == "list"          ? "[]"
                                                                : type == "OrderedDict" ? R"({"$odict":[]})"
                                                                                        : R"({"$dict":[]})"));
    } else if (type == "int" || type == "str" || type == "bool" || type == "bytes" || type == "float") {
      SHARDMESH_TRY(const std::string text, text_of(value, "serialized_value"));
      SHARDMESH_TRY(made.archive, archive_of_value(type, text));
    } else {
      return fail(errc::unsupported, fmt::format("is of the unknown type {}", escaped(type)));
    }
    return {};
  }

  read_budget& budget_;
  std::unordered_set<std::string> lists_, have_items_;  // paths with their ranks
  // Dicts with integer keys beyond 64 bits, which the JSON parser reads as floats.
  std::unordered_set<std::string> have_large_;
  // Per dict (path with rank): its keys that are not text, by name.
  std::unordered_map<std::string, std::map<std::string, path_key, std::less<>>> keys_;
  manifest made_;
};

}  // namespace

result<manifest> parse_manifest(std::string_view text, read_budget& budget) {
  budget.add_description(static_cast<std::int64_t>(text.size()));
  SHARDMESH_TRY(budget.build(16 * static_cast<std::int64_t>(text.size())));  // for the parsed document
  SHARDMESH_TRY(check_json_depth(text, 64));
  const json document = json::parse(text, nullptr, false);
  if (!document.is_discarded()) return manifest_reader(budget).read(document);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] != '{')
    return fail(errc::unsupported, "is YAML, which torchsnapshot wrote before 0.1.0")
        .with_hint("load it there and take the snapshot again with torchsnapshot 0.1.0, which writes JSON");
  return fail(errc::bad_format, "is not the manifest of a snapshot: it is not JSON");
}

}  // namespace shardmesh::torchsnapshot
