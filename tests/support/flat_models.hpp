// SPDX-License-Identifier: Apache-2.0
// Random FSDP models without tensor parallelism: units, groups with replicas, ranks outside the group, alignments, and
// memory orders. It imports, so it is the last header that a test includes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <indices.hpp>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

import shardmesh.fsdp;

namespace flat_models {

using indices::row_major;
using namespace shardmesh;

// A parameter of the model: its name, shape, and number. Element e of parameter p is p * 1'000'000 + e everywhere.
struct wanted {
  std::string key;
  extents shape;
  std::int64_t first = 0;
};

inline std::vector<wanted> random_wanted(std::mt19937_64& random) {
  constexpr std::int64_t sizes[] = {0, 1, 2, 3, 5, 7, 11};
  std::vector<wanted> made(1 + random() % 5);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i].key = "p" + std::to_string(i);
    made[i].first = static_cast<std::int64_t>(i) * 1'000'000;
    const std::size_t rank = random() % 4;
    for (std::size_t d = 0; d < rank; ++d) made[i].shape.push_back(sizes[(random() % 12 == 0 ? 0 : 1) + random() % 6]);
  }
  return made;
}

// The layout of the wanted parameters, the same on every rank.
struct described {
  std::vector<flat_parameter> flats;
  std::vector<shard_group> groups;
};

inline shard_group random_group(std::mt19937_64& random, std::int32_t ranks) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(ranks));
  const auto size = static_cast<std::int32_t>(1 + random() % static_cast<std::uint64_t>(ranks));
  for (std::int32_t r = 0; r < ranks; ++r) positions[static_cast<std::size_t>(r)] = r % size;
  if (random() % 2 && ranks % size == 0) std::sort(positions.begin(), positions.end());
  // Whole replicas only; ranks beyond the last whole replica are not members.
  for (std::int32_t r = ranks / size * size; r < ranks; ++r)
    if (!std::is_sorted(positions.begin(), positions.end()) || size == ranks || ranks % size != 0)
      positions[static_cast<std::size_t>(r)] = -1;
  return shard_group::make(positions).value();
}

inline described random_layout(std::mt19937_64& random, const std::vector<wanted>& parameters, std::int32_t ranks) {
  described made;
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (std::size_t at = 0; at < order.size();) {
    const std::size_t count = std::min<std::size_t>(1 + random() % 3, order.size() - at);
    std::vector<parameter_info> infos;
    for (std::size_t i = at; i < at + count; ++i) {
      const wanted& w = parameters[order[i]];
      parameter_info info{w.key, w.shape, extents::filled(w.shape.rank(), 0), dtype::int64};
      std::vector<std::size_t> dims(w.shape.rank());
      std::iota(dims.begin(), dims.end(), std::size_t{0});
      if (random() % 2) std::shuffle(dims.begin(), dims.end(), random);
      std::int64_t step = 1;
      for (std::size_t k = dims.size(); k-- > 0;) {
        info.strides[dims[k]] = step;
        step *= w.shape[dims[k]];
      }
      infos.push_back(info);
    }
    at += count;
    made.groups.push_back(random_group(random, ranks));
    made.flats.push_back(flat_parameter::make(infos, {},
                                              {.group_size = made.groups.back().size(),
                                               .alignment = static_cast<std::int64_t>(random() % 3 * 2),
                                               .sharded = random() % 6 != 0})
                             .value());
  }
  return made;
}

// One rank's shards of a layout, filled with each element's number, or with -7.
struct rank_model {
  rank_model(const described& d, const std::vector<wanted>& parameters, std::int32_t rank, bool filled) {
    memory.resize(d.flats.size());
    for (std::size_t u = 0; u < d.flats.size(); ++u) {
      const flat_parameter& flat = d.flats[u];
      const auto position = d.groups[u].position(rank);
      memory[u].assign(position ? static_cast<std::size_t>(flat.sharded_numel()) : 0, -7);
      const tensor_view shard{reinterpret_cast<std::byte*>(memory[u].data()),
                              dtype::int64,
                              {},
                              {static_cast<std::int64_t>(memory[u].size())},
                              {1}};
      model.units.push_back({"", flat, d.groups[u], shard});
      if (!position) continue;
      if (!flat.fill_padding(*position, shard)) std::abort();
      if (filled) fill(flat, parameters, *position, u);
    }
    for (const wanted& w : parameters) model.order.push_back(w.key);
  }
  rank_model(const rank_model&) = delete;

  // Follows the definition: the element at memory place s of a parameter is at offset + s of the flat tensor.
  void fill(const flat_parameter& flat, const std::vector<wanted>& parameters, std::int32_t position, std::size_t u) {
    const index_range held = flat.shard_range(position);
    for (std::size_t i = 0; i < flat.parameters().size(); ++i) {
      const parameter_info& p = flat.parameters()[i];
      const wanted& w =
          *std::find_if(parameters.begin(), parameters.end(), [&](const wanted& x) { return x.key == p.fqn; });
      indices::for_each_in(box::whole(p.shape), [&](const extents& index) {
        std::int64_t at = flat.offset(i) - held.begin;
        for (std::size_t d = 0; d < index.rank(); ++d) at += index[d] * p.strides[d];
        if (at >= 0 && at < held.size) memory[u][static_cast<std::size_t>(at)] = w.first + row_major(index, p.shape);
      });
    }
  }

  std::vector<std::vector<std::int64_t>> memory;
  fsdp_model model;
};

}  // namespace flat_models
