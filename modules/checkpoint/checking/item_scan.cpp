// SPDX-License-Identifier: Apache-2.0
module;
#include <range/v3/action/sort.hpp>
#include <range/v3/action/unique.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import :global_collector;
import :item_scan;
import :pickle_scan;

namespace shardmesh {
namespace {

// An item, and the key of one entry in it.
using keyed_item = std::pair<stored_range, const std::string*>;

// The ends of the runs of items that one read fetches: small items, close to each other in a file, and not transformed.
// A folder has as many items as chunks. Read one by one, each costs a read and a check of the file's version.
std::vector<std::size_t> ends_of_runs(std::span<const keyed_item> items) {
  constexpr std::int64_t small_item = 1 << 14, most_bytes = 1 << 20;
  std::vector<std::size_t> ends;
  for (std::size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    const stored_range& first = items[begin].first;
    for (std::int64_t reached = first.offset; end < items.size(); ++end) {
      const stored_range& next = items[end].first;
      const bool fits = next.length <= small_item && next.transform == 0 && next.file == first.file &&
                        next.offset - reached <= small_item && next.offset - first.offset <= most_bytes;
      if (!fits) break;
      reached = std::max(reached, next.offset + next.length);
    }
    end = std::max(end, begin + 1);
    ends.push_back(end);
  }
  return ends;
}

// Scans one item. Returns false if its file cannot be opened. Skips items that cannot be read, which `verify` reports.
bool scan_item(checkpoint_reader& reader, const keyed_item& item, global_collector& into) {
  const auto source = reader.item_bytes(item.first);
  if (!source) return source.error().code == errc::out_of_bounds;
  const std::string& file = reader.contents().files[static_cast<std::size_t>(item.first.file)];
  scan_bytes(**source, {.file = file, .key = *item.second, .is_item = true}, into);
  return true;
}

// Scans a run of items with one read; returns false if that fails.
bool scan_run(checkpoint_reader& reader, std::span<const keyed_item> items, global_collector& into) {
  const stored_range& first = items.front().first;
  std::int64_t end = first.offset;
  for (const auto& [place, key] : items) end = std::max(end, place.offset + place.length);
  const auto source = reader.item_bytes({first.file, 0, first.offset, end - first.offset});
  if (!source) return false;
  std::vector<std::byte> bytes(static_cast<std::size_t>(end - first.offset));
  if (!(*source)->read(0, bytes)) return false;
  for (const auto& [place, key] : items) {
    const auto part = std::span(bytes).subspan(static_cast<std::size_t>(place.offset - first.offset),
                                               static_cast<std::size_t>(place.length));
    const std::string& file = reader.contents().files[static_cast<std::size_t>(place.file)];
    scan_bytes(memory_source(part, (*source)->name()), {.file = file, .key = *key, .is_item = true}, into);
  }
  return true;
}

}  // namespace

void scan_items(checkpoint_reader& reader, int threads, global_collector& into) {
  const catalog& contents = reader.contents();
  std::vector<keyed_item> items;
  items.reserve(contents.chunk_places.size() + contents.objects.size());
  for (const tensor_entry& tensor : contents.tensors)
    for (std::int32_t i = 0; i < tensor.chunk_count; ++i)
      items.emplace_back(contents.chunk_places[static_cast<std::size_t>(tensor.first_chunk + i)], &tensor.key);
  for (const object_entry& object : contents.objects) items.emplace_back(object.place, &object.key);
  const auto place_of = [](const auto& item) {
    return std::tuple(item.first.file, item.first.offset, item.first.length, item.first.transform);
  };
  std::erase_if(items, [](const auto& item) { return item.first.file < 0; });
  const auto with_key = [&](const auto& item) { return std::tuple(place_of(item), item.second); };
  items |= ranges::actions::sort(ranges::less{}, with_key) |  // the first key of a shared item
           ranges::actions::unique(ranges::equal_to{}, place_of);
  const std::vector<std::size_t> ends = ends_of_runs(items);
  const auto ended = parallel_for(threads, static_cast<std::int64_t>(ends.size()), [&](std::int64_t i) -> result<void> {
    const auto at = static_cast<std::size_t>(i);
    const std::size_t begin = at == 0 ? 0 : ends[at - 1];
    const auto run = std::span(items).subspan(begin, ends[at] - begin);
    if (run.size() > 1 && scan_run(reader, run, into)) return {};
    for (const keyed_item& item : run)
      if (!scan_item(reader, item, into)) break;  // the other items are in the same file
    return {};
  });
  if (!ended) into.problem(ended.error(), "");  // the rest is not searched
}

}  // namespace shardmesh
