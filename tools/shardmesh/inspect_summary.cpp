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

#include "counted.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.storage;

namespace tool {
using namespace shardmesh;

namespace {

// Prints one line per key; long values are cut.
void print_texts(out_buffer& out, const catalog& contents) {
  constexpr std::size_t most_keys = 20, longest = 100;
  std::size_t printed = 0;
  const texts_by_key texts = different_texts(contents);
  for (const auto& [key, values] : texts) {
    if (printed++ == most_keys) {
      out.print("  metadata    ... and {}\n", counted(texts.size() - most_keys, "more key"));
      return;
    }
    const std::string& value = values.front()->value;
    out.print(
        "  metadata    {}: {}{}{}\n", escaped(key), escaped(std::string_view(value).substr(0, longest)),
        value.size() > longest ? fmt::format("... ({})", human_bytes(static_cast<std::int64_t>(value.size()))) : "",
        values.size() > 1 ? fmt::format(" (and {})", counted(values.size() - 1, "other value")) : "");
  }
}

std::int64_t saturating(std::int64_t a, std::int64_t b) {
  return checked_add(a, b).value_or(INT64_MAX);
}

// Returns "1 (0)", "4 (0 to 3)", or "2 (0 and 3)": a gap in the ranks is not hidden.
std::string ranks_text(const std::set<std::int32_t>& ranks) {
  const std::int32_t first = *ranks.begin(), last = *ranks.rbegin();
  if (ranks.size() == 1) return fmt::format("1 ({})", first);
  const bool is_whole = last - first + 1 == static_cast<std::int64_t>(ranks.size());
  if (is_whole) return fmt::format("{} ({} to {})", ranks.size(), first, last);
  constexpr std::size_t most = 20;
  std::vector<std::string> some;
  for (const std::int32_t rank : ranks) {
    if (some.size() == most) break;
    some.push_back(std::to_string(rank));
  }
  if (ranks.size() > most) return fmt::format("{} of {} to {}", ranks.size(), first, last);
  return fmt::format("{} ({})", ranks.size(), enumerated(some));
}

}  // namespace

std::string type_text(const tensor_entry& tensor) {
  if (tensor.type != dtype::undefined) return std::string(name(tensor.type));
  return tensor.properties.foreign_dtype.empty() ? "-" : escaped(tensor.properties.foreign_dtype);
}

std::string block_type_of(const catalog& contents, const tensor_entry& tensor) {
  if (contents.format != checkpoint_format::gguf || tensor.chunk_count == 0) return {};
  const stored_range& place = contents.chunk_places[static_cast<std::size_t>(tensor.first_chunk)];
  return contents.transforms[static_cast<std::size_t>(place.transform)];
}

std::string type_text(const catalog& contents, const tensor_entry& tensor) {
  const std::string blocks = block_type_of(contents, tensor);
  return blocks.empty() ? type_text(tensor) : fmt::format("{} ({})", type_text(tensor), blocks);
}

namespace {

// The counts of a summary.
struct entry_counts {
  std::map<std::string_view, std::pair<std::int64_t, std::int64_t>> by_dtype;  // bytes, tensors
  std::map<std::string, std::int64_t> top_level;
  std::int64_t chunks = 0, parameters = 0, optimizer = 0, other = 0, bytes = 0, unknown = 0;
};

entry_counts count_entries(const catalog& contents, const shown_entries& shown) {
  entry_counts made;
  key_roles roles;
  for (const tensor_entry& tensor : contents.tensors) roles.add(tensor.key);
  for (const object_entry& object : contents.objects) roles.add(object.key);
  // Floating tensors of the model are its parameters and buffers; counters, packed weights, and a trainer's state are
  // not.
  const auto count_of = [&](key_role role, dtype type) -> std::int64_t& {
    if (role == key_role::optimizer) return made.optimizer;
    const bool is_number = kind(type) == dtype_kind::floating || kind(type) == dtype_kind::complex;
    return role == key_role::model && is_number ? made.parameters : made.other;
  };
  for (const std::size_t i : shown.tensors) {
    const tensor_entry& tensor = contents.tensors[i];
    made.chunks += tensor.chunk_count;
    ++made.top_level[tensor.key.substr(0, tensor.key.find('.'))];
    const std::int64_t size = bytes_of(contents, tensor);
    if (tensor.type == dtype::undefined && size == 0) {
      ++made.unknown;
      continue;
    }
    auto& [dtype_bytes, count] =
        made.by_dtype[tensor.type == dtype::undefined ? "other representations" : name(tensor.type)];
    dtype_bytes = saturating(dtype_bytes, size);
    ++count;
    made.bytes = saturating(made.bytes, size);
    if (tensor.type != dtype::undefined)
      count_of(roles.role_of(tensor.key), tensor.type) += checked_volume(tensor.shape).value_or(0);
  }
  for (const std::size_t i : shown.objects)
    ++made.top_level[contents.objects[i].key.substr(0, contents.objects[i].key.find('.'))];
  return made;
}

}  // namespace

void print_summary(out_buffer& out, const checkpoint_reader& reader, const shown_entries& shown) {
  const catalog& contents = reader.contents();
  const entry_counts entries = count_entries(contents, shown);
  std::set<std::int32_t> ranks;
  for (const std::string& file : contents.files)
    if (const auto rank = rank_of_file(file)) ranks.insert(*rank);
  const auto more = [](std::size_t count, std::string_view what) {
    return count == 0 ? std::string() : ", " + counted(count, what);
  };
  out.print("{}: {}{}{}, {} in {}{}{}\n", escaped(printable_url(reader.path().string())), name(contents.format),
            contents.version.empty() ? "" : " ", escaped(contents.version), counted(shown.tensors.size(), "tensor"),
            counted(entries.chunks, "chunk"), more(shown.objects.size(), "object"),
            more(contents.files.size(), "file"));
  std::vector<std::string> beside;
  if (entries.optimizer > 0) beside.push_back(counted(entries.optimizer, "number") + " of optimizer state");
  if (entries.other > 0) beside.push_back(counted(entries.other, "other number"));
  out.print("  parameters  {}{}\n", entries.parameters,
            beside.empty() ? std::string() : fmt::format(" (and {})", fmt::join(beside, ", ")));
  std::vector<std::string> dtypes;
  for (const auto& [type, total] : entries.by_dtype)
    dtypes.push_back(fmt::format("{} {} in {}", type, human_bytes(total.first), total.second));
  if (entries.unknown > 0) dtypes.push_back(fmt::format("{} of other representations not counted", entries.unknown));
  out.print("  bytes       {}{}{}\n", human_bytes(entries.bytes), dtypes.empty() ? "" : ": ", fmt::join(dtypes, ", "));
  if (const shown_references found = references_in(contents, shown); !found.folders.empty())
    out.print("  referred    {} in {}\n", human_bytes(found.bytes),
              escaped(fmt::format("{}", fmt::join(found.folders, ", "))));
  if (!ranks.empty()) out.print("  ranks       {}\n", ranks_text(ranks));
  std::vector<std::string> keys;
  for (const auto& [key, count] : entries.top_level) {
    if (keys.size() == 20) {
      keys.push_back(fmt::format("... and {} more", entries.top_level.size() - 20));
      break;
    }
    keys.push_back(fmt::format("{} ({})", escaped(key), count));
  }
  out.print("  keys        {}\n", fmt::join(keys, ", "));
  print_texts(out, contents);
}

}  // namespace tool
