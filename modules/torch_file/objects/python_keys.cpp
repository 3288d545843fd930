// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :archive_from_json;
import :python_keys;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t mark_digits = 16;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Pickles a key on its own. Empty for a key with a tensor or storage, whose bytes lie outside the pickle.
std::optional<std::string> pickled_key(const pickle::value& key, std::size_t most_bytes) {
  pickle::writer out(2);
  bool has_storage = false;
  const auto write_id = [&](const pickle::value&) {
    has_storage = true;
    out.none();
  };
  if (!out.value(key, most_bytes, write_id) || has_storage) return std::nullopt;
  // Protocol 2 spells bytes and sets as calls. Read from it, they are calls, whose parts are numbered when they are
  // written again. After a second time, the bytes are therefore the same for a source of any protocol, and for what a
  // conversion wrote.
  const std::vector<std::byte> spelled = std::move(out).finish();
  const auto graph = pickle::graph::parse(std::span<const std::byte>(spelled));
  pickle::writer again(2);
  if (!graph || !again.value(graph->root(), most_bytes)) return std::nullopt;
  return std::string(text_of(std::move(again).finish()));
}

}  // namespace

std::optional<path_key> step_of(const pickle::value& key, std::string_view unnamed) {
  constexpr std::int64_t beyond_integers = 100'000'000'000'000;  // path_key keeps 15 characters
  if (key.kind() == pickle::kind::integer)
    if (const auto number = key.as_int(); number && *number > -beyond_integers && *number < 10 * beyond_integers)
      return path_key::of_integer(*number);
  if (const auto text = key.text()) return path_key(*text);
  const auto text = pickle::python_str(key);
  const auto pickled = pickled_key(key, text ? most_key_bytes : most_key_bytes / 4);  // a known text is short itself
  if (!pickled) return text ? std::optional<path_key>(*text) : std::nullopt;
  return path_key::of_python(text ? std::string_view(*text) : unnamed, *pickled);
}

bool has_name(const pickle::value& key) {
  return key.text() || pickle::python_str(key);
}

path_key marked_key(std::string_view pickled) {
  const auto json = json_of_key(path_key::of_python("", pickled));
  const std::string_view content = json ? std::string_view(*json) : pickled;
  const auto digest = xxh3(std::as_bytes(std::span(content.data(), content.size())));
  return path_key::of_python("#" + to_hex(digest).substr(0, mark_digits), pickled);
}

std::optional<std::string> json_of_key(const path_key& key) {
  const std::string_view pickled = key.pickled();
  const std::vector<std::byte> archive = object_archive(std::as_bytes(std::span(pickled.data(), pickled.size())));
  const memory_source source(archive, "a key");
  const auto opened = item::open(source);
  if (!opened) return std::nullopt;
  auto json = object_json(source, *opened, opened->root(), {.limit_bytes = 1 << 20});
  if (!json || !is_whole_json(*json) || !pickle_from_json(*json)) return std::nullopt;
  return *std::move(json);
}

result<path_key> key_of_json(std::string_view text, std::string_view json) {
  if (json.size() > 4 * most_key_bytes) return fail(errc::bad_format, "a key of a dict is too long");
  SHARDMESH_TRY(const std::vector<std::byte> pickled, pickle_from_json(json));
  SHARDMESH_TRY(const auto parsed, pickle::graph::parse(pickled));
  // A document may pair any text with a key, so a key whose text only Python can compute gets its .pt name instead.
  if (!pickle::python_str(parsed.root())) return marked_key(text_of(pickled));
  return path_key::of_python(text, text_of(pickled));
}

std::optional<std::string> note_of_python_keys(std::span<const output_tensor> tensors,
                                               std::span<const output_object> objects, std::string_view to,
                                               function_ref<bool(const path_key& key)> is_lost) {
  std::set<std::string> seen;
  std::vector<std::string> names;
  const auto look = [&](const auto& entry) {
    path above;
    for (const path_key& step : entry.where) {
      above.push_back(step);
      if (!step.is_python() || !is_lost(step)) continue;
      std::string name = dotted(above);
      if (seen.insert(name).second) names.push_back(std::move(name));
    }
  };
  for (const output_tensor& tensor : tensors) look(tensor);
  for (const output_object& object : objects) look(object);
  if (names.empty()) return std::nullopt;
  return fmt::format("{} Python-only dict {} become{} {}: {}", names.size(), names.size() == 1 ? "key" : "keys",
                     names.size() == 1 ? "s" : "", to, name_list(names));
}

}  // namespace shardmesh::torch_file
