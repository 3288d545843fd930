// SPDX-License-Identifier: Apache-2.0
module;
#include <range/v3/view/enumerate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

import shardmesh.checkpoint_core;
import :stored_items;

namespace shardmesh {

std::vector<stored_item> items_of(const catalog& contents) {
  std::vector<stored_item> items;
  const auto note = [&](const stored_range& place, std::size_t entry, std::int32_t chunk) {
    if (place.file >= 0 && place.length > 0)
      items.push_back({place.file, place.offset, place.offset + place.length, entry, chunk});
  };
  for (const auto& [t, tensor] : ranges::views::enumerate(contents.tensors))
    for (std::int32_t i = tensor.first_chunk; i < tensor.first_chunk + tensor.chunk_count; ++i)
      note(contents.chunk_places[static_cast<std::size_t>(i)], t, i);
  for (const auto& [o, object] : ranges::views::enumerate(contents.objects))
    note(object.place, contents.tensors.size() + o, -1);
  std::sort(items.begin(), items.end());
  return items;
}

met_items::met_items(std::vector<stored_item> items) : items_(std::move(items)) {
  std::int64_t furthest = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (i == 0 || items_[i].file != items_[i - 1].file) furthest = 0;
    furthest_.push_back(furthest = std::max(furthest, items_[i].end));
  }
}

bool met_items::meets(std::int32_t file, std::int64_t begin, std::int64_t end) const {
  const auto behind = std::lower_bound(
      items_.begin(), items_.end(), std::pair(file, end),
      [](const stored_item& item, const auto& wanted) { return std::pair(item.file, item.begin) < wanted; });
  if (behind == items_.begin()) return false;
  const auto last = static_cast<std::size_t>(behind - items_.begin()) - 1;
  return items_[last].file == file && furthest_[last] > begin;
}

std::vector<box> boxes_of(const catalog& contents, const tensor_entry& tensor) {
  std::vector<box> boxes;
  for (std::int32_t i = 0; i < tensor.chunk_count; ++i) {
    box b = contents.chunk_box(tensor, tensor.first_chunk + i);
    if (!b.is_empty()) boxes.push_back(b);
  }
  std::sort(boxes.begin(), boxes.end());
  return boxes;
}

}  // namespace shardmesh
