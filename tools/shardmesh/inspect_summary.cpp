// SPDX-License-Identifier: Apache-2.0
#include "inspect_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.catalog;
import shardmesh.storage;

namespace tool {
using namespace shardmesh;

namespace {

// One line a key; long values are cut.
void print_texts(out_buffer& out, const catalog& contents) {
  constexpr std::size_t most_keys = 20, longest = 100;
  std::size_t printed = 0;
  const texts_by_key texts = different_texts(contents);
  for (const auto& [key, values] : texts) {
    if (printed++ == most_keys) {
      out.print("  metadata    ... and {} more keys\n", texts.size() - most_keys);
      return;
    }
    const std::string& value = values.front()->value;
    out.print(
        "  metadata    {}: {}{}{}\n", escaped(key), escaped(std::string_view(value).substr(0, longest)),
        value.size() > longest ? fmt::format("... ({})", human_bytes(static_cast<std::int64_t>(value.size()))) : "",
        values.size() > 1 ? fmt::format(" (and {} other values)", values.size() - 1) : "");
  }
}

}  // namespace

std::string type_text(const tensor_entry& tensor) {
  if (tensor.type != dtype::undefined) return std::string(name(tensor.type));
  return tensor.properties.foreign_dtype.empty() ? "-" : escaped(tensor.properties.foreign_dtype);
}

void print_summary(out_buffer& out, const checkpoint_reader& reader, const shown_entries& shown) {
  const catalog& contents = reader.contents();
  std::map<std::string_view, std::pair<std::int64_t, std::int64_t>> by_dtype;  // bytes, tensors
  std::map<std::string, std::int64_t> top_level;
  std::int64_t chunks = 0, parameters = 0, optimizer = 0, other = 0, bytes = 0, unknown = 0;
  key_roles roles;
  for (const tensor_entry& tensor : contents.tensors) roles.add(tensor.key);
  for (const object_entry& object : contents.objects) roles.add(object.key);
  // Floating tensors of the model are its parameters and buffers; counters, packed weights and a trainer's state are
  // not.
  const auto count_of = [&](key_role role, dtype type) -> std::int64_t& {
    if (role == key_role::optimizer) return optimizer;
    const bool is_number = kind(type) == dtype_kind::floating || kind(type) == dtype_kind::complex;
    return role == key_role::model && is_number ? parameters : other;
  };
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    chunks += tensor.chunk_count;
    ++top_level[tensor.key.substr(0, tensor.key.find('.'))];
    if (tensor.type == dtype::undefined) {
      ++unknown;
      continue;
    }
    const std::int64_t numel = checked_volume(tensor.shape).value_or(0);
    const std::int64_t size = size_bytes(tensor.type, numel).value_or(0);
    auto& [dtype_bytes, count] = by_dtype[name(tensor.type)];
    dtype_bytes += size;
    ++count;
    bytes += size;
    count_of(roles.role_of(tensor.key), tensor.type) += numel;
  }
  for (const std::size_t i : shown.objects)
    ++top_level[contents.objects[i].key.substr(0, contents.objects[i].key.find('.'))];
  std::set<std::int32_t> ranks;
  for (const std::string& file : contents.files)
    if (const auto rank = rank_of_file(file)) ranks.insert(*rank);
  out.print("{}: {}{}{}, {} tensors in {} chunks, {} objects, {} files\n", escaped(reader.path().string()),
            name(contents.format), contents.version.empty() ? "" : " ", escaped(contents.version), shown.tensors.size(),
            chunks, shown.objects.size(), contents.files.size());
  std::vector<std::string> beside;
  if (optimizer > 0) beside.push_back(fmt::format("{} numbers of optimizer state", optimizer));
  if (other > 0) beside.push_back(fmt::format("{} other numbers", other));
  out.print("  parameters  {}{}\n", parameters,
            beside.empty() ? std::string() : fmt::format(" (and {})", fmt::join(beside, ", ")));
  std::vector<std::string> dtypes;
  for (const auto& [type, total] : by_dtype)
    dtypes.push_back(fmt::format("{} {} in {}", type, human_bytes(total.first), total.second));
  if (unknown > 0) dtypes.push_back(fmt::format("not counted {} of other representations", unknown));
  out.print("  bytes       {}{}{}\n", human_bytes(bytes), dtypes.empty() ? "" : ": ", fmt::join(dtypes, ", "));
  if (!ranks.empty()) out.print("  ranks       {} ({} to {})\n", ranks.size(), *ranks.begin(), *ranks.rbegin());
  std::vector<std::string> keys;
  for (const auto& [key, count] : top_level) {
    if (keys.size() == 20) {
      keys.push_back(fmt::format("... and {} more", top_level.size() - 20));
      break;
    }
    keys.push_back(fmt::format("{} ({})", escaped(key), count));
  }
  out.print("  keys        {}\n", fmt::join(keys, ", "));
  print_texts(out, contents);
}

}  // namespace tool
