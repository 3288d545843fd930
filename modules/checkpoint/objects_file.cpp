// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

constexpr std::string_view opening = "{\"format\":\"shardmesh objects 1\",\n\"xxh3\":\"";
constexpr std::size_t digit_count = 32;

std::string digest_of(std::string_view text) {
  return to_hex(xxh3(std::as_bytes(std::span(text.data(), text.size()))));
}

std::string path_json(const path& where) {
  std::string text = "[";
  for (const path_key& item : where) {
    if (text.size() > 1) text += ',';
    text += item.is_index() ? fmt::format("{}", item.index()) : json_quoted(item.name());
  }
  return text + "]";
}

error malformed(std::string_view what) {
  return fail(errc::bad_format, fmt::format("is not a file of objects: {}", what));
}

}  // namespace

std::filesystem::path objects_beside(const std::filesystem::path& file) {
  std::filesystem::path name = file;
  return name.replace_extension(".objects.json");
}

result<std::string> format_objects(std::span<const output_object> objects) {
  std::string text = std::string(opening) + std::string(digit_count, '0') + "\",\n\"objects\":{";
  std::string_view separator = "\n";
  for (const output_object& object : objects) {
    auto value = object.json();
    if (!value) return std::move(value).take_error().with_key(object.key);
    // The value is an object of its own: its members follow the path.
    fmt::format_to(std::back_inserter(text), "{}{}:{{\"path\":{},{}", separator, json_quoted(object.key),
                   path_json(object.where), std::string_view(*value).substr(1));
    separator = ",\n";
  }
  text += "\n}}\n";
  return text.replace(opening.size(), digit_count, digest_of(text));
}

result<std::vector<std::string>> objects_not_held_whole(std::span<const output_object> objects) {
  std::vector<std::string> lines;
  for (const output_object& object : objects) {
    auto value = object.json();
    if (!value) return std::move(value).take_error().with_key(object.key);
    if (is_whole_json(*value)) continue;
    const bool has_tensors = value->find("{\"$tensor\":") != std::string::npos;
    lines.push_back(fmt::format(
        "{} is not held whole by objects.json: it has {}", object.key,
        has_tensors ? "tensors inside, of which only the digests are kept" : "values that are not plain data"));
  }
  return lines;
}

result<std::vector<stored_object>> parse_objects(std::string_view text) {
  using json = nlohmann::ordered_json;
  if (!text.starts_with(opening) || text.size() < opening.size() + digit_count)
    return malformed("its first lines are unknown");
  std::string zeroed(text);
  zeroed.replace(opening.size(), digit_count, std::string(digit_count, '0'));
  const std::string_view stated = text.substr(opening.size(), digit_count);
  if (const std::string found = digest_of(zeroed); found != stated)
    return fail(errc::checksum_mismatch, "is not what was written").with_values(std::string(stated), found);
  SHARDMESH_CHECK(check_json_depth(text));
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("objects") || !document["objects"].is_object())
    return malformed("not JSON");
  std::vector<stored_object> objects;
  for (const auto& [key, entry] : document["objects"].items()) {
    if (!entry.is_object() || !entry.contains("kind") || !entry["kind"].is_string() || !entry.contains("type") ||
        !entry["type"].is_string() || !entry.contains("value"))
      return malformed("an entry lacks kind, type or value").with_key(key);
    stored_object object;
    object.key = key;
    if (entry.contains("path"))
      for (const auto& item : entry["path"]) {
        if (item.is_string())
          object.where.push_back(item.get<std::string>());
        else if (item.is_number_integer())
          object.where.push_back(item.get<std::int64_t>());
        else
          return malformed("a path holds something else than names and indices").with_key(key);
      }
    object.value = {entry["kind"].get<std::string>(), entry["type"].get<std::string>(), entry["value"].dump()};
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace shardmesh
