// SPDX-License-Identifier: Apache-2.0
// The items of a checkpoint that share bytes.
module;
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.dcp;
import :entry_check;
import :stored_items;
import :stored_readers;

namespace shardmesh {
namespace {

const std::string& key_of(const catalog& contents, std::size_t entry) {
  return entry < contents.tensors.size() ? contents.tensors[entry].key
                                         : contents.objects[entry - contents.tensors.size()].key;
}

std::tuple<std::int32_t, std::int64_t, std::int64_t> range_of(const stored_item& item) {
  return {item.file, item.begin, item.end};
}

// Returns the items, ascending, without chunks that repeat an earlier one on purpose (`dcp::shared_chunks_of`); and
// those chunks, as far as they belong to touched entries.
std::pair<std::vector<stored_item>, std::vector<stored_item>> split_shared(std::vector<stored_item> all,
                                                                           const checkpoint_reader& reader,
                                                                           const std::vector<bool>* touched) {
  const std::span<const std::int32_t> chunks = dcp::shared_chunks_of(reader);
  std::vector<stored_item> items, shared;
  if (chunks.empty()) return {std::move(all), std::move(shared)};
  for (const stored_item& item : all) {
    if (!std::ranges::binary_search(chunks, item.chunk))
      items.push_back(item);
    else if (!touched || (*touched)[item.entry])
      shared.push_back(item);
  }
  return {std::move(items), std::move(shared)};
}

// Finds shared bytes within each checkpoint of the folder.
std::vector<error> shared_bytes_of_parts(const checkpoint_reader& reader) {
  std::vector<error> problems;
  for (const checkpoint_reader* part : readers_of_parts(reader))
    for (error& problem : find_shared_bytes(*part)) problems.push_back(std::move(problem));
  std::ranges::sort(problems, {}, [](const error& e) { return to_string(e); });
  return problems;
}

}  // namespace

std::vector<error> find_shared_bytes(const checkpoint_reader& reader, const std::vector<bool>* touched) {
  const catalog& contents = reader.contents();
  std::vector<error> problems;
  if (contents.format == checkpoint_format::parts) return shared_bytes_of_parts(reader);
  if (contents.format != checkpoint_format::dcp) return problems;  // a .pt file's tensors may share storage
  const auto [items, shared] = split_shared(items_of(contents), reader, touched);
  const auto is_touched = [&](const stored_item& item) {
    return !touched || (*touched)[item.entry] || std::ranges::binary_search(shared, range_of(item), {}, range_of);
  };
  // Compares each item with the earlier one that reaches furthest, so an item that shares bytes is found at least once.
  const stored_item* furthest = nullptr;
  for (const stored_item& item : items) {
    if (furthest && furthest->file == item.file && item.begin < furthest->end &&
        (is_touched(item) || is_touched(*furthest)))
      problems.push_back(fail(errc::overlap, fmt::format("shares bytes {} to {} with the item of {}", item.begin,
                                                         std::min(item.end, furthest->end),
                                                         escaped(key_of(contents, furthest->entry))))
                             .with_file((reader.path() / contents.files[static_cast<std::size_t>(item.file)]).string())
                             .with_key(key_of(contents, item.entry)));
    if (!furthest || furthest->file != item.file || item.end > furthest->end) furthest = &item;
  }
  return problems;
}

std::vector<bool> repeated_items(const checkpoint_reader& reader) {
  const catalog& contents = reader.contents();
  if (contents.format != checkpoint_format::dcp) return {};
  struct placed {
    stored_range place;
    std::size_t number;
  };
  std::vector<placed> items;
  const std::size_t chunks = contents.chunk_places.size();
  const auto note = [&](const stored_range& place, std::size_t number) {
    if (place.file >= 0 && place.length > 0) items.push_back({place, number});
  };
  for (std::size_t i = 0; i < chunks; ++i) note(contents.chunk_places[i], i);
  for (std::size_t i = 0; i < contents.objects.size(); ++i) note(contents.objects[i].place, chunks + i);
  std::sort(items.begin(), items.end(), [](const placed& a, const placed& b) {
    return std::tie(a.place.file, a.place.offset, a.place.length, a.number) <
           std::tie(b.place.file, b.place.offset, b.place.length, b.number);
  });
  std::vector<bool> repeated;
  std::int32_t file = -1;
  std::int64_t end = 0;
  for (const placed& item : items) {
    if (item.place.file == file && item.place.offset < end) {
      repeated.resize(chunks + contents.objects.size());
      repeated[item.number] = true;
      continue;
    }
    file = item.place.file;
    end = checked_add(item.place.offset, item.place.length).value_or(INT64_MAX);
  }
  return repeated;
}

}  // namespace shardmesh
