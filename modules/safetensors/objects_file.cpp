// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <restore_hint.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.safetensors;

import :objects_document;

namespace shardmesh::safetensors {
namespace {

constexpr std::string_view opening = "{\"format\":\"shardmesh objects 1\",\n\"xxh3\":\"";
constexpr std::size_t digit_count = 32;
constexpr std::int64_t most_file_bytes = std::int64_t{4} << 30;

std::string digest_of(std::string_view text) {
  return to_hex(xxh3(std::as_bytes(std::span(text.data(), text.size()))));
}

std::string path_json(const path& where) {
  std::string text = "[";
  for (const path_key& item : where) {
    if (text.size() > 1) text += ',';
    if (item.is_integer())
      text += fmt::format("{{\"$int\":{}}}", item.name());
    else if (const auto json = item.is_python() ? torch_file::json_of_key(item) : std::nullopt)
      text += fmt::format("{{\"$key\":{},\"text\":{}}}", json_quoted(*json), json_quoted(item.name()));
    else
      text += item.is_index() ? fmt::format("{}", item.index()) : json_quoted(item.name());
  }
  return text + "]";
}

// Returns true when the document must hold a tensor's path. A name that is not UTF-8 cannot be in a document; the key
// serves instead.
bool has_path_beside_key(const output_tensor& tensor) {
  const path& where = tensor.where;
  if (where.empty() || (where.size() == 1 && where[0] == path_key(tensor.key))) return false;
  return std::all_of(where.begin(), where.end(),
                     [](const path_key& step) { return step.is_index() || is_utf8(step.name()); });
}

error malformed(std::string_view what) {
  return fail(errc::bad_format, fmt::format("is not a file of objects: {}", what));
}

}  // namespace

result<std::string> format_objects(std::span<const output_object> objects, std::span<const output_tensor> tensors) {
  std::string text = std::string(opening) + std::string(digit_count, '0') + "\",\n\"objects\":{";
  std::string_view separator = "\n";
  for (const output_object& object : objects) {
    auto value = object.json();
    if (!value) return std::move(value).error().with_key(object.key);
    // The value is an object itself: its members follow the path.
    fmt::format_to(std::back_inserter(text), "{}{}:{{\"path\":{},{}", separator, json_quoted(object.key),
                   path_json(object.where), std::string_view(*value).substr(1));
    separator = ",\n";
  }
  text += "\n}";
  bool has_paths = false;
  for (const output_tensor& tensor : tensors) {
    if (!has_path_beside_key(tensor)) continue;
    fmt::format_to(std::back_inserter(text), "{}{}:{}", has_paths ? ",\n" : ",\n\"tensors\":{\n",
                   json_quoted(tensor.key), path_json(tensor.where));
    has_paths = true;
  }
  text += has_paths ? "\n}}\n" : "}\n";
  return text.replace(opening.size(), digit_count, digest_of(text));
}

std::vector<error> problems_of_names(std::span<const output_object> objects) {
  std::vector<error> problems;
  for (const output_object& object : objects)
    // Also checks the names inside the nested path: our own reader would refuse a document with such a name.
    if (!is_utf8(object.key) || !std::all_of(object.where.begin(), object.where.end(), [](const path_key& step) {
          return step.is_index() || is_utf8(step.name());
        }))
      problems.push_back(fail(errc::unsupported, "an object's name that is not UTF-8 cannot be written to objects.json")
                             .with_key(object.key)
                             .with_hint("rename it, or pass skip_objects"));
  return problems;
}

result<std::vector<std::string>> objects_not_held_whole(std::span<const output_object> objects) {
  std::vector<std::string> lines;
  for (const output_object& object : objects) {
    auto value = object.json();
    if (!value) return std::move(value).error().with_key(object.key);
    if (torch_file::is_whole_json(*value)) continue;
    const bool has_tensors = value->find("{\"$tensor\":") != std::string::npos;
    lines.push_back(fmt::format(
        "objects.json holds only a part of {}: it has {}", object.key,
        has_tensors ? "tensors inside, of which only the digests are kept" : "values that are not plain data"));
  }
  return lines;
}

result<stored_objects> parse_objects(std::string_view text) {
  if (!text.starts_with(opening) || text.size() < opening.size() + digit_count)
    return malformed("its first lines are unknown");
  std::string zeroed(text);
  zeroed.replace(opening.size(), digit_count, std::string(digit_count, '0'));
  const std::string_view stated = text.substr(opening.size(), digit_count);
  if (const std::string found = digest_of(zeroed); found != stated)
    return fail(errc::checksum_mismatch, "was changed after it was written: its checksum differs")
        .with_values(std::string(stated), found)
        .with_hint(detail::restore_hint);
  return read_objects_document(text);
}

bool is_objects_file(const std::filesystem::path& file) {
  const auto bytes = read_file(file, most_file_bytes);
  if (!bytes) return false;
  const auto objects = parse_objects({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  return objects || objects.error().code == errc::checksum_mismatch;
}

}  // namespace shardmesh::safetensors
