// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.checkpoint_core;
import shardmesh.layout;
import shardmesh.transfer;
import :box_sets;

namespace shardmesh {
namespace {

box hull_of(const box& a, const box& b) {
  box all = a;
  for (std::size_t d = 0; d < a.rank(); ++d) {
    all.offsets[d] = std::min(a.offsets[d], b.offsets[d]);
    all.sizes[d] = std::max(a.end(d), b.end(d)) - all.offsets[d];
  }
  return all;
}

// Divides a chunk dimension by dimension. Between two neighbouring cuts the set of wanted boxes does not change.
class covering {
 public:
  covering(const box& chunk, std::int64_t item_bytes)
      : chunk_(chunk), stored_{.type = dtype::uint8, .sizes = chunk.sizes, .strides = contiguous_strides(chunk.sizes)} {
    // Costs are counted in bytes, so the last dimension is multiplied by the item size.
    if (chunk.rank() == 0) return;
    for (std::size_t d = 0; d + 1 < chunk.rank(); ++d) stored_.strides[d] *= item_bytes;
    stored_.sizes[chunk.rank() - 1] *= item_bytes;
    item_bytes_ = item_bytes;
  }

  // The boxes over the dimensions from `d` on. In the dimensions before `d`, they span only the chunk's first index.
  std::vector<box> boxes(const std::vector<const box*>& wanted, std::size_t d) const {
    if (d == chunk_.rank()) {
      box one = chunk_;
      for (std::int64_t& size : one.sizes) size = 1;
      return {one};
    }
    std::vector<std::int64_t> cuts;
    for (const box* one : wanted) cuts.push_back(one->offsets[d]), cuts.push_back(one->end(d));
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<box> made, band;
    std::int64_t begin = 0, end = 0;
    const auto close = [&] {
      for (box& one : band) {
        one.offsets[d] = begin;
        one.sizes[d] = end - begin;
        made.push_back(one);
      }
      band.clear();
    };
    std::vector<const box*> here;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      here.clear();
      for (const box* one : wanted)
        if (one->offsets[d] <= cuts[i] && one->end(d) >= cuts[i + 1]) here.push_back(one);
      if (here.empty()) {
        close();
        continue;
      }
      std::vector<box> inner = boxes(here, d + 1);
      if (band.empty() || inner != band) {
        close();
        band = std::move(inner);
        begin = cuts[i];
      }
      end = cuts[i + 1];
    }
    close();
    return joined(std::move(made));
  }

 private:
  std::int64_t cost(const box& part) const {
    box bytes = part;
    for (std::size_t d = 0; d < part.rank(); ++d) bytes.offsets[d] -= chunk_.offsets[d];
    bytes.offsets[part.rank() - 1] *= item_bytes_;
    bytes.sizes[part.rank() - 1] *= item_bytes_;
    return read_cost_bytes(stored_, bytes);
  }

  // Joins neighbours if the joined box costs no more.
  std::vector<box> joined(std::vector<box> apart) const {
    std::vector<box> made;
    for (std::size_t i = 0; i < apart.size(); ++i) {
      box one = apart[i];
      while (!made.empty()) {
        const box both = hull_of(made.back(), one);
        const auto meets = [&](const box& other) { return intersect(other, both).has_value(); };
        if (cost(both) > cost(made.back()) + cost(one) || std::any_of(made.begin(), made.end() - 1, meets) ||
            std::any_of(apart.begin() + static_cast<std::ptrdiff_t>(i) + 1, apart.end(), meets))
          break;
        one = both;
        made.pop_back();
      }
      made.push_back(one);
    }
    if (made.size() < 2) return made;
    box all = made.front();
    std::int64_t sum = 0;
    for (const box& one : made) {
      all = hull_of(all, one);
      sum += cost(one);
    }
    if (cost(all) <= sum) return {all};
    return made;
  }

  const box& chunk_;
  stored_tensor stored_;
  std::int64_t item_bytes_ = 1;
};

}  // namespace

bool are_apart(std::size_t rank, std::span<const box> boxes) {
  std::vector<std::int64_t> offsets, sizes;
  const std::vector<owner_id> owners(boxes.size(), 0);
  for (const box& where : boxes) {
    offsets.insert(offsets.end(), where.offsets.begin(), where.offsets.end());
    sizes.insert(sizes.end(), where.sizes.begin(), where.sizes.end());
  }
  return check_overlaps(rank, offsets, sizes, owners, 1).ok();
}

std::vector<std::size_t> layers_of(std::size_t rank, std::span<const box> boxes) {
  std::vector<std::size_t> layers(boxes.size(), 0);
  std::vector<box> distinct;
  for (const box& where : boxes)
    if (distinct.empty() || distinct.back() != where) distinct.push_back(where);
  if (are_apart(rank, distinct)) return layers;
  std::vector<std::vector<box>> taken;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (i > 0 && boxes[i] == boxes[i - 1]) {
      layers[i] = layers[i - 1];
      continue;
    }
    const auto has_room = [&](const std::vector<box>& layer) {
      return std::none_of(layer.begin(), layer.end(),
                          [&](const box& other) { return intersect(other, boxes[i]).has_value(); });
    };
    const auto layer = std::find_if(taken.begin(), taken.end(), has_room);
    layers[i] = static_cast<std::size_t>(layer - taken.begin());
    if (layer == taken.end())
      taken.push_back({boxes[i]});
    else
      layer->push_back(boxes[i]);
  }
  return layers;
}

std::vector<box> readable_boxes(const box& chunk, std::span<const box> wanted, std::int64_t item_bytes) {
  std::vector<const box*> all;
  for (const box& one : wanted) {
    if (one == chunk) return {chunk};
    all.push_back(&one);
  }
  if (all.empty()) return {};
  return covering(chunk, item_bytes).boxes(all, 0);
}

std::vector<box> cut_in_order(const box& whole, const extents& order, std::int64_t most_elements) {
  const std::int64_t volume = whole.volume();
  if (volume <= most_elements) return {whole};
  const auto dimension = [&](std::size_t d) { return order.empty() ? d : static_cast<std::size_t>(order[d]); };
  box stored = whole;  // with its dimensions in storage order
  for (std::size_t d = 0; d < whole.rank(); ++d) {
    stored.offsets[d] = whole.offsets[dimension(d)];
    stored.sizes[d] = whole.sizes[dimension(d)];
  }
  const std::int64_t pieces = (volume + most_elements - 1) / most_elements;
  slab_walk walk(stored, (volume + pieces - 1) / pieces);
  std::vector<box> made;
  while (const auto slab = walk.next()) {
    box piece = whole;
    for (std::size_t d = 0; d < whole.rank(); ++d) {
      piece.offsets[dimension(d)] = slab->offsets[d];
      piece.sizes[dimension(d)] = slab->sizes[d];
    }
    made.push_back(std::move(piece));
  }
  return made;
}

}  // namespace shardmesh
