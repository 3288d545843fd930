// SPDX-License-Identifier: Apache-2.0
// The obstacles to a conversion: paths that conflict, objects without a pickle, and entries that the format lacks. The
// choice of the entries is in `conversion.cpp`.
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;

namespace shardmesh {
namespace views = ranges::views;
namespace {

// The expression that matches this key and no other.
std::string exact_pattern(std::string_view key) {
  std::string pattern;
  for (const char c : key) {
    const bool is_plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || (c & 0x80) != 0;
    if (!is_plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

std::vector<error> find_path_conflicts(std::span<const output_tensor> tensors, std::span<const output_object> objects) {
  std::vector<std::pair<path, const std::string*>> paths;
  const auto add = [&](const path& where, const std::string& key) {
    paths.emplace_back(where, &key);
    if (where.empty()) paths.back().first.push_back(key);
  };
  for (const output_tensor& tensor : tensors) add(tensor.where, tensor.key);
  for (const output_object& object : objects) add(object.where, object.key);
  std::sort(paths.begin(), paths.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(a.first.begin(), a.first.end(), b.first.begin(), b.first.end());
  });
  // After sorting, a path that begins with another one follows it directly.
  std::vector<error> problems;
  for (const auto& [before, after] : views::zip(paths, paths | views::drop(1))) {
    const auto& [outer, outer_key] = before;
    const auto& [inner, inner_key] = after;
    if (outer.size() > inner.size() || !std::equal(outer.begin(), outer.end(), inner.begin())) continue;
    problems.push_back(
        fail(errc::duplicate_key, fmt::format("{} is below {}, which is a value: one nested path cannot be both",
                                              escaped(*inner_key), escaped(*outer_key)))
            .with_key(*inner_key));
  }
  return problems;
}

void find_unpicklable(checkpoint_reader& reader, conversion& work) {
  const checkpoint_format format = reader.contents().format;
  if (format != checkpoint_format::safetensors && format != checkpoint_format::hf &&
      format != checkpoint_format::gguf && format != checkpoint_format::npz && format != checkpoint_format::parts)
    return;
  std::unordered_set<std::string> bad;
  for (std::size_t i = 0; i < work.objects.size(); ++i) {
    const std::size_t source = work.object_sources[i];
    auto value = reader.read_object(source);
    if (!value) {
      work.problems.push_back(std::move(value).error());
      continue;
    }
    const bool is_whole = torch_file::is_whole_json(value->json) && value->json.find("{\"$ref\":") == std::string::npos;
    if (is_whole) continue;
    auto archive = work.objects[i].archive();
    if (archive) continue;
    bad.insert(work.objects[i].key);
    error why = std::move(archive).error();
    if (why.key.empty()) why.key = work.objects[i].key;
    if (why.file.empty()) why.file = printable_url(reader.path().string());
    why.found = value->type;
    why.code = errc::unsupported;
    work.unsupported.push_back(std::move(why).with_hint(
        fmt::format("pass skip_unsupported to leave it out, or skip '{}'", exact_pattern(work.objects[i].key))));
    ++work.unsupported_objects;
  }
  if (!bad.empty()) drop_objects(work, [&](const output_object& object) { return bad.contains(object.key); });
}

void find_disputed(checkpoint_reader& reader, conversion& work, bool with_objects) {
  const auto is_dispute = [](const error& one) { return one.code == errc::disagreement; };
  if (std::none_of(reader.warnings().begin(), reader.warnings().end(), is_dispute)) return;
  const catalog& contents = reader.contents();
  for (const std::size_t source : work.sources) {
    const tensor_entry& tensor = contents.tensors[source];
    for (std::int32_t chunk = tensor.first_chunk; chunk < tensor.first_chunk + tensor.chunk_count; ++chunk) {
      if (contents.chunk_places[static_cast<std::size_t>(chunk)].file >= 0) continue;
      auto opened = reader.open_chunk(tensor, chunk);
      if (opened || !is_dispute(opened.error())) continue;
      work.problems.push_back(std::move(opened).error());
      break;
    }
  }
  if (!with_objects) return;
  for (const std::size_t source : work.object_sources) {
    if (contents.objects[source].place.file >= 0) continue;
    auto value = reader.read_object(source);
    if (!value && is_dispute(value.error())) work.problems.push_back(std::move(value).error());
  }
}

std::optional<error> find_lost_tensors(const checkpoint_reader& reader, const conversion& work, bool skip) {
  if (skip || !work.tensors.empty() || !reader.contents().tensors.empty() || reader.unread_tensors() == 0)
    return std::nullopt;
  const std::string why = reader.notes().empty() ? std::string() : reader.notes().front();
  return fail(errc::unsupported,
              fmt::format("no tensor would be written: the source's {} cannot be kept{}",
                          detail::counted(reader.unread_tensors(), "tensor"), why.empty() ? "" : " (" + why + ")"))
      .with_file(reader.path().string())
      .with_hint("pass skip_unsupported to leave them out");
}

void settle_unsupported(conversion& work, bool skip, save_report& report) {
  if (!skip) {
    for (error& why : work.unsupported) work.problems.push_back(std::move(why));
    return;
  }
  for (const error& why : work.unsupported)
    work.notes.push_back(fmt::format("{} is left out: {}", why.key, why.message));
  report.skipped_tensors += work.unsupported_tensors;
  report.skipped_objects += work.unsupported_objects;
}

}  // namespace shardmesh
