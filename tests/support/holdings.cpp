// SPDX-License-Identifier: Apache-2.0
// Implements shardmesh.test.holdings.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <indices.hpp>
#include <memory>
#include <optional>
#include <random_segments.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

module shardmesh.test.holdings;

import shardmesh.collective_checkpoint;
import shardmesh.layout;

using namespace shardmesh;

namespace holdings {

std::byte byte_of(std::size_t tensor, const extents& shape, const extents& index, std::int64_t k) {
  std::uint64_t linear = 0;
  for (std::size_t d = 0; d < shape.rank(); ++d)
    linear = linear * static_cast<std::uint64_t>(shape[d]) + static_cast<std::uint64_t>(index[d]);
  return static_cast<std::byte>((linear * 8 + static_cast<std::uint64_t>(k) + 31 * tensor) * 0x9e3779b97f4a7c15ULL >>
                                56);
}

boxes_of_ranks random_boxes(dice& roll, const extents& shape, std::int32_t ranks) {
  boxes_of_ranks made(static_cast<std::size_t>(ranks));
  const auto dims = static_cast<std::int64_t>(shape.rank());
  if (roll.below(3) != 0) {
    const std::int64_t first = 1 + roll.below(ranks);
    const std::int64_t sizes[] = {first, ranks / first};
    const device_mesh mesh = device_mesh::make(sizes).value();
    std::vector<placement> placements;
    for (int m = 0; m < 2; ++m) {
      const std::int64_t kind = dims == 0 ? 0 : roll.below(5);
      const auto dim = static_cast<std::int32_t>(dims == 0 ? 0 : roll.below(dims));
      placements.push_back(
          kind == 0   ? placement::replicate()
          : kind == 1 ? placement::strided_shard(dim, 1 + roll.below(3))
          : kind == 2 ? placement::shard_segments(dim, random_segments(roll, shape[static_cast<std::size_t>(dim)]))
                      : placement::shard(dim));
    }
    const layout laid = layout::make(mesh, placements, shape).value();
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      for (const placed_box& placed : laid.boxes(rank)) made[static_cast<std::size_t>(rank)].push_back(placed.where);
    return made;
  }
  std::vector<box> tiles{box::whole(shape)};
  for (std::int64_t cut = roll.below(6); cut > 0 && dims > 0; --cut) {
    box& one = tiles[static_cast<std::size_t>(roll.below(static_cast<std::int64_t>(tiles.size())))];
    const auto d = static_cast<std::size_t>(roll.below(dims));
    if (one.sizes[d] < 2) continue;
    const std::int64_t at = 1 + roll.below(one.sizes[d] - 1);
    box upper = one;
    upper.offsets[d] += at;
    upper.sizes[d] -= at;
    one.sizes[d] = at;
    tiles.push_back(upper);
  }
  for (const box& tile : tiles) {
    const std::int64_t owner = roll.below(ranks);
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      if (rank == owner || roll.below(4) == 0) made[static_cast<std::size_t>(rank)].push_back(tile);
  }
  return made;
}

std::vector<tensor_model> random_models(dice& roll) {
  std::vector<tensor_model> models;
  const dtype types[] = {dtype::float32, dtype::int64, dtype::uint8, dtype::bfloat16, dtype::complex64};
  for (std::int64_t i = 0, count = 1 + roll.below(6); i < count; ++i) {
    extents shape;
    for (std::int64_t d = roll.below(4); d > 0; --d) shape.push_back(roll.below(8) == 0 ? 0 : 1 + roll.below(11));
    models.push_back({{"layers", i, roll.below(2) == 0 ? "weight" : "a.b"}, shape, types[roll.below(5)]});
  }
  return models;
}

namespace {

template <class Step>
void walk(std::size_t number, const local_state_tensor& held, const local_part& part, Step step) {
  const std::int64_t width = bits(held.type) / 8;
  indices::for_each(part.where.sizes, [&](const extents& local) {
    extents index = part.where.offsets;
    std::int64_t at = 0;
    for (std::size_t d = 0; d < local.rank(); ++d) {
      index[d] += local[d];
      at += local[d] * part.memory.strides[d];
    }
    for (std::int64_t k = 0; k < width; ++k)
      step(part.memory.data[at * width + k], byte_of(number, held.shape, index, k));
  });
}

}  // namespace

void holding::add(std::size_t number, const tensor_model& model, std::span<const box> boxes, bool filled) {
  local_state_tensor held{model.where, model.shape, model.type, {}};
  const std::int64_t width = bits(model.type) / 8;
  for (const box& where : boxes) {
    if (where.is_empty()) continue;
    extents strides = contiguous_strides(where.sizes);
    std::int64_t room = where.volume();
    if (where.rank() > 0 && (number + boxes.size()) % 2 == 0)  // gaps between the elements
      for (std::int64_t& stride : strides) stride *= 2;
    for (std::size_t d = 0; d < where.rank(); ++d) room = std::max(room, where.sizes[d] * strides[d] + 1);
    auto& bytes = memory.emplace_back(static_cast<std::size_t>(room * 2 * width), std::byte{0xcd});
    held.parts.push_back({where, {bytes.data(), model.type, {}, where.sizes, strides}});
    if (filled) walk(number, held, held.parts.back(), [](std::byte& at, std::byte value) { at = value; });
  }
  state.tensors.push_back(std::move(held));
}

std::string holding::differences(std::span<const std::size_t> numbers) const {
  for (std::size_t i = 0; i < state.tensors.size(); ++i)
    for (const local_part& part : state.tensors[i].parts) {
      bool equal = true;
      walk(numbers[i], state.tensors[i], part, [&](std::byte& at, std::byte value) { equal &= at == value; });
      if (!equal) return to_string(state.tensors[i].where) + " differs in " + to_string(part.where);
    }
  return {};
}

namespace {

local_state_object list_of_two() {
  tree_builder builder;
  builder.begin(node_kind::sequence);
  builder.leaf();
  builder.leaf();
  builder.end();
  return {{"optim", "betas"}, builder.finish().value(), {0.9, 0.999}};
}

}  // namespace

std::vector<local_state_object> objects() {
  return {{{"step"}, {}, {std::int64_t{1234567890123}}},
          {{"optim", "name"}, {}, {std::string("adam \xc3\xa9")}},
          {{"nothing"}, {}, {plain_value()}},
          {{"flag"}, {}, {true}},
          {{"raw"}, {}, {std::vector<std::byte>{std::byte{0}, std::byte{255}}}},
          list_of_two()};
}

}  // namespace holdings
