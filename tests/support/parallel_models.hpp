// SPDX-License-Identifier: Apache-2.0
// Random FSDP models over random 2-d and 3-d meshes, sharded by tensor parallelism first, as lists of element numbers;
// and those of flat_models.hpp. It imports, so it is the last header that a test includes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <elements.hpp>
#include <numeric>
#include <random>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/join.hpp>
#include <range/v3/view/take.hpp>
#include <string>
#include <utility>
#include <vector>

#include "flat_models.hpp"
import shardmesh.fsdp;

namespace parallel_models {

namespace views = ranges::views;
using elements::numbers;
using namespace shardmesh;

// A parameter: element e (row-major) is first + e everywhere. Padding is less than every `first`.
struct wanted {
  std::string key;
  extents shape;
  std::int64_t first = 0;
  std::string shared;  // the name of a shared parameter, if any
};

inline std::vector<wanted> random_wanted(std::mt19937_64& random) {
  constexpr std::int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8};
  std::vector<wanted> made(1 + random() % 5);
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i].key = "p" + std::to_string(i);
    made[i].first = static_cast<std::int64_t>(i + 1) * 1'000'000;
    const std::size_t rank = random() % 12 == 0 ? 0 : 1 + random() % 3;
    for (std::size_t d = 0; d < rank; ++d) made[i].shape.push_back(sizes[(random() % 16 == 0 ? 0 : 1) + random() % 7]);
    if (random() % 4 == 0) made[i].shared = made[i].key + "_tied";
  }
  return made;
}

// The layout of the wanted parameters, the same on every rank.
struct described {
  device_mesh mesh;
  std::vector<parallel_parameters> units;
};

inline constexpr std::int32_t world = 8;

inline described random_layout(std::mt19937_64& random, const std::vector<wanted>& parameters) {
  const std::vector<extents> meshes = {{2, 2}, {3, 2},    {2, 3},    {1, 4},    {4, 2},   {2, 4},
                                       {4, 1}, {2, 2, 2}, {1, 2, 3}, {2, 1, 2}, {2, 2, 1}};
  const extents sizes = meshes[random() % meshes.size()];
  std::vector<std::int32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  if (random() % 3 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(static_cast<std::size_t>(box::whole(sizes).volume()));
  described made{device_mesh::make(sizes, {}, ranks).value(), {}};
  // Usually the last dimension but one; sometimes tensor parallelism comes first.
  const std::size_t fsdp_dim = random() % 4 == 0 ? random() % sizes.rank() : sizes.rank() - 2;
  const bool is_hybrid = sizes.rank() == 3 && random() % 2 == 0;
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (std::size_t at = 0; at < order.size();) {
    const std::size_t count = std::min<std::size_t>(1 + random() % 3, order.size() - at);
    std::vector<parallel_parameter_info> infos;
    std::vector<shared_parameter_info> shared;
    for (std::size_t i = at; i < at + count; ++i) {
      const wanted& w = parameters[order[i]];
      parallel_parameter_info info{w.key, w.shape, std::vector<placement>(sizes.rank(), placement::replicate()),
                                   dtype::int64};
      for (std::size_t d = is_hybrid ? 1 : 0; d < sizes.rank(); ++d)
        if (d != fsdp_dim && w.shape.rank() > 0 && random() % 3 != 0)
          info.placements[d] = placement::shard(static_cast<std::int32_t>(random() % w.shape.rank()));
      if (random() % 3 == 0) {
        for (std::size_t d = 0; d < w.shape.rank(); ++d) info.order.push_back(static_cast<std::int64_t>(d));
        std::shuffle(info.order.begin(), info.order.end(), random);
      }
      if (!w.shared.empty()) shared.push_back({w.shared, w.key});
      infos.push_back(std::move(info));
    }
    at += count;
    made.units.push_back(parallel_parameters::make(made.mesh, world, infos, shared,
                                                   {.fsdp_dim = fsdp_dim,
                                                    .alignment = static_cast<std::int64_t>(random() % 3 * 2),
                                                    .sharded = random() % 8 != 0})
                             .value());
  }
  return made;
}

inline const wanted& find(const std::vector<wanted>& parameters, const std::string& key) {
  return *std::find_if(parameters.begin(), parameters.end(),
                       [&](const wanted& w) { return w.key == key || w.shared == key; });
}

// The elements of a parameter that a rank holds before FSDP, in memory order. From the left, every mesh dimension takes
// its ceil(n / parts) of the remaining indices.
inline numbers local_elements(const parallel_parameter_info& p, const device_mesh& mesh, std::int32_t rank,
                              std::int64_t first) {
  const extents at = *mesh.coordinate_of(rank);
  std::vector<numbers> index(p.shape.rank());
  for (std::size_t d = 0; d < p.shape.rank(); ++d) {
    index[d].resize(static_cast<std::size_t>(p.shape[d]));
    std::iota(index[d].begin(), index[d].end(), std::int64_t{0});
  }
  for (std::size_t m = 0; m < mesh.rank(); ++m) {
    if (!p.placements[m].is_shard()) continue;
    numbers& list = index[static_cast<std::size_t>(p.placements[m].dim)];
    const std::int64_t size = (ranges::distance(list) + mesh.sizes()[m] - 1) / mesh.sizes()[m];
    const auto chunks = list | views::chunk(std::max<std::int64_t>(size, 1));
    list = chunks | views::drop(at[m]) | views::take(1) | views::join | ranges::to<numbers>();
  }
  std::vector<std::size_t> order(p.shape.rank());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = p.order.empty() ? k : static_cast<std::size_t>(p.order[k]);
  std::vector<extents> elements{extents::filled(p.shape.rank(), 0)};
  for (const std::size_t d : order) {
    std::vector<extents> next;
    for (const extents& e : elements)
      for (const std::int64_t i : index[d]) {
        next.push_back(e);
        next.back()[d] = i;
      }
    elements = std::move(next);
  }
  numbers made;
  for (const extents& e : elements) {
    std::int64_t number = 0;
    for (std::size_t d = 0; d < e.rank(); ++d) number = number * p.shape[d] + e[d];
    made.push_back(first + number);
  }
  return made;
}

// The contents of a rank's flat shard, from the definition; empty outside the mesh.
inline numbers flat_memory(const parallel_parameters& unit, const std::vector<wanted>& parameters, std::int32_t rank) {
  if (!unit.mesh().coordinate_of(rank)) return {};
  const flat_parameter& options = unit.flat(0);
  numbers flat;
  for (const parallel_parameter_info& p : unit.parameters()) {
    while (options.alignment() > 0 && static_cast<std::int64_t>(flat.size()) % options.alignment() != 0)
      flat.push_back(42);
    const numbers held = local_elements(p, unit.mesh(), rank, find(parameters, p.fqn).first);
    flat.insert(flat.end(), held.begin(), held.end());
  }
  const auto parts = static_cast<std::size_t>(unit.mesh().sizes()[unit.fsdp_dim()]);
  while (options.alignment() > 0 && flat.size() % parts != 0) flat.push_back(42);
  if (!options.is_sharded()) return flat;
  while (flat.size() % parts != 0) flat.push_back(0);
  const auto size = static_cast<std::ptrdiff_t>(flat.size() / parts);
  const auto begin = flat.begin() + size * (*unit.mesh().coordinate_of(rank))[unit.fsdp_dim()];
  return {begin, begin + size};
}

struct rank_model {
  rank_model(const described& d, const std::vector<wanted>& parameters, std::int32_t rank, bool filled) {
    for (const parallel_parameters& unit : d.units) memory.push_back(flat_memory(unit, parameters, rank));
    for (std::size_t u = 0; u < d.units.size(); ++u) {
      if (!filled)
        for (std::int64_t& value : memory[u])
          if (value >= 1'000'000) value = -7;
      const auto size = static_cast<std::int64_t>(memory[u].size());
      model.units.push_back(parallel_unit(
          "", d.units[u], rank, {reinterpret_cast<std::byte*>(memory[u].data()), dtype::int64, {}, {size}, {1}}));
    }
    for (const wanted& w : parameters) model.order.push_back(w.key);
  }
  rank_model(const rank_model&) = delete;
  std::vector<numbers> memory;
  fsdp_model model;
};

// The elements of a box of a parameter, row-major.
inline numbers elements_of(const wanted& w, const box& where) {
  numbers made = elements::in(where, w.shape);
  for (std::int64_t& e : made) e += w.first;
  return made;
}

inline numbers values_of(const host_tensor& tensor, const box& part) {
  auto copied = host_tensor::make(tensor.type(), part.sizes).value();
  if (!copy(adapter<host_tensor>::view(copied), subview(adapter<host_tensor>::view(tensor), part))) std::abort();
  const auto* values = reinterpret_cast<const std::int64_t*>(copied.bytes().data());
  return {values, values + copied.bytes().size() / sizeof(std::int64_t)};
}

}  // namespace parallel_models
