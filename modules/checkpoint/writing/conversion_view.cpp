// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.torch_file;
import :conversion_view;

namespace shardmesh {
using namespace torch_file;
namespace {

constexpr std::string_view description_ending = ".wrapper";

std::string described_key(const std::string& description) {
  return description.substr(0, description.size() - description_ending.size());
}

// The key of a tensor that was split.
std::string key_of(const catalog& contents, const unwrapped_tensor& parts) {
  return described_key(contents.objects[parts.description].key);
}

}  // namespace

result<void> conversion_view::add(result<std::unique_ptr<checkpoint_reader>> made) {
  if (!made) return std::move(made).error();
  if (!*made) return {};
  readers_.push_back(*std::move(made));
  last_ = readers_.back().get();
  return {};
}

result<void> conversion_view::take_apart(bool to_pickles, bool components) {
  if (to_pickles && !components) {
    SHARDMESH_TRY(give_archives());
    return recombine({});  // tensors that the source stores as components
  }
  SHARDMESH_TRY(add(split_objects(*last_, to_pickles ? to_split::opaque_tensors : to_split::all)));
  SHARDMESH_TRY(auto unwrapped, unwrap_tensors(*last_));
  for (const auto& [tensor, parts] : unwrapped.taken) apart_.push_back(parts);
  std::sort(apart_.begin(), apart_.end(),
            [](const unwrapped_tensor& a, const unwrapped_tensor& b) { return a.description < b.description; });
  return add(std::move(unwrapped.reader));
}

result<void> conversion_view::give_archives() {
  SHARDMESH_TRY(auto unwrapped, unwrap_tensors(*last_, to_unwrap::without_archive));
  if (!unwrapped.reader) return {};
  SHARDMESH_TRY(add(std::move(unwrapped.reader)));
  std::set<std::size_t> whole;
  for (const auto& [tensor, parts] : unwrapped.taken) whole.insert(parts.description);
  return recombine(whole);
}

result<void> conversion_view::recombine(const std::set<std::size_t>& whole) {
  const checkpoint_reader* const before = last_;
  SHARDMESH_TRY(add(wrap_components(*last_)));
  const auto* const made = last_ == before ? nullptr : dynamic_cast<const assembled_tensors*>(last_);
  if (made == nullptr) return {};
  for (std::size_t i = 0; i < last_->contents().tensors.size(); ++i)
    if (const auto components = made->components_of(i); components && !whole.contains(components->description))
      rebuilt_.push_back(i);
  return {};
}

std::vector<std::string> conversion_view::notes_of_components(const conversion& work) const {
  std::vector<std::string> notes, rebuilt, written;
  if (rebuilt_.empty() && apart_.empty()) return notes;
  const catalog& contents = last_->contents();
  std::vector<std::size_t> tensors = work.sources, objects = work.object_sources;
  std::ranges::sort(tensors);
  std::ranges::sort(objects);
  for (const std::size_t tensor : rebuilt_)
    if (std::ranges::binary_search(tensors, tensor))
      rebuilt.push_back(fmt::format("{} ({})", contents.tensors[tensor].key, contents.tensors[tensor].opaque_kind));
  for (const unwrapped_tensor& parts : apart_) {
    const auto first = std::ranges::lower_bound(tensors, parts.first_tensor);
    const bool has_component = first != tensors.end() && *first < parts.first_tensor + parts.tensors;
    if (!has_component && !std::ranges::binary_search(objects, parts.description)) continue;
    const std::string key = key_of(contents, parts);
    written.push_back(fmt::format("{} ({})", key, parts.kind));
    if (!parts.lost_because.empty()) notes.push_back(fmt::format("{} cannot be rebuilt: {}", key, parts.lost_because));
  }
  if (!rebuilt.empty()) notes.push_back("wrapping tensors are rebuilt from their components: " + name_list(rebuilt));
  if (!written.empty()) notes.push_back("wrapping tensors are written as their components: " + name_list(written));
  return notes;
}

bool conversion_view::is_component(std::string_view key) const {
  const catalog& contents = last_->contents();
  const tensor_entry* const found = contents.find(key);
  if (found == nullptr) return false;
  const auto index = static_cast<std::size_t>(found - contents.tensors.data());
  return std::any_of(apart_.begin(), apart_.end(), [&](const unwrapped_tensor& parts) {
    return index >= parts.first_tensor && index < parts.first_tensor + parts.tensors;
  });
}

std::optional<std::string> conversion_view::note_of_lost_ways_back(const conversion& work) const {
  if (apart_.empty()) return std::nullopt;
  const catalog& contents = last_->contents();
  std::unordered_map<std::size_t, const output_tensor*> tensors;
  for (std::size_t i = 0; i < work.tensors.size(); ++i) tensors.emplace(work.sources[i], &work.tensors[i]);
  std::unordered_map<std::size_t, const output_object*> objects;
  for (std::size_t i = 0; i < work.objects.size(); ++i) objects.emplace(work.object_sources[i], &work.objects[i]);
  std::vector<std::string> lost;
  for (const unwrapped_tensor& parts : apart_) {
    const std::string was = key_of(contents, parts);
    const auto description = objects.find(parts.description);
    const bool is_described = description != objects.end() && description->second->key.ends_with(description_ending);
    std::size_t written = 0, fitting = 0;
    for (std::size_t i = parts.first_tensor; i < parts.first_tensor + parts.tensors; ++i) {
      const auto found = tensors.find(i);
      if (found == tensors.end()) continue;
      ++written;
      const tensor_entry& stored = contents.tensors[i];
      fitting += is_described && found->second->type == stored.type &&
                 found->second->key == described_key(description->second->key) + stored.key.substr(was.size());
    }
    if ((written > 0 || is_described) && fitting < parts.tensors) lost.push_back(was);
  }
  if (lost.empty()) return std::nullopt;
  std::sort(lost.begin(), lost.end());
  return "wrapping tensors cannot be rebuilt, because their components are changed, merged, or left out: " +
         name_list(lost);
}

void make_objects_of_layouts(conversion& work) {
  const auto is_object = [](const output_tensor& tensor) {
    return tensor.archive && tensor.properties.layout != stored_properties{}.layout;
  };
  for (output_tensor& tensor : work.tensors)
    if (is_object(tensor))
      work.objects.push_back({tensor.key, tensor.where, tensor.chunks.front().rank, tensor.archive, {}});
  drop_tensors(work, is_object);
}

}  // namespace shardmesh
