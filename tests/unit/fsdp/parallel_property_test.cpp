// SPDX-License-Identifier: Apache-2.0
// Random models over random 2-d and 3-d meshes, cut by tensor parallelism and then by FSDP, against lists of element
// numbers: what is saved in any form is true, moves the fewest bytes possible, and loads into a model on another mesh.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <elements.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/join.hpp>
#include <range/v3/view/take.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "random_seed.hpp"
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

namespace views = ranges::views;
using elements::numbers;
using state = state_dict<host_tensor>;

// A parameter: element e (row-major) is first + e everywhere. Padding is below every first.
struct wanted {
  std::string key;
  extents shape;
  std::int64_t first = 0;
  std::string shared;  // another name, if any
};

std::vector<wanted> random_wanted(std::mt19937_64& random) {
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

// How the wanted parameters are laid out: described once, the same on every rank.
struct described {
  device_mesh mesh;
  std::vector<parallel_parameters> units;
};

constexpr std::int32_t world = 8;

described random_layout(std::mt19937_64& random, const std::vector<wanted>& parameters) {
  const std::vector<extents> meshes = {{2, 2}, {3, 2},    {2, 3},    {1, 4},    {4, 2},   {2, 4},
                                       {4, 1}, {2, 2, 2}, {1, 2, 3}, {2, 1, 2}, {2, 2, 1}};
  const extents sizes = meshes[random() % meshes.size()];
  std::vector<std::int32_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  if (random() % 3 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
  ranks.resize(static_cast<std::size_t>(box::whole(sizes).volume()));
  described made{device_mesh::make(sizes, {}, ranks).value(), {}};
  // Mostly the last dimension but one; sometimes tensor parallelism is in front.
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

const wanted& find(const std::vector<wanted>& parameters, const std::string& key) {
  return *std::find_if(parameters.begin(), parameters.end(),
                       [&](const wanted& w) { return w.key == key || w.shared == key; });
}

// The elements of a parameter that a rank holds before FSDP, in the order of its memory: every mesh dimension from the
// left takes its ceil(n / parts) of the indices that are left.
numbers local_elements(const parallel_parameter_info& p, const device_mesh& mesh, std::int32_t rank,
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

// What a rank's flat shard holds, from the definition; empty outside the mesh.
numbers flat_memory(const parallel_parameters& unit, const std::vector<wanted>& parameters, std::int32_t rank) {
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
numbers elements_of(const wanted& w, const box& where) {
  numbers made = elements::in(where, w.shape);
  for (std::int64_t& e : made) e += w.first;
  return made;
}

numbers values_of(const host_tensor& tensor, const box& part) {
  auto copied = host_tensor::make(tensor.type(), part.sizes).value();
  if (!copy(adapter<host_tensor>::view(copied), subview(adapter<host_tensor>::view(tensor), part))) std::abort();
  const auto* values = reinterpret_cast<const std::int64_t*>(copied.bytes().data());
  return {values, values + copied.bytes().size() / sizeof(std::int64_t)};
}

// What is wrong with a rank's value, and the elements that it has.
std::string check_value(const state_value<host_tensor>& value, const wanted& w, std::set<std::int64_t>& has) {
  const auto check = [&](const host_tensor& tensor, const box& where, const extents& local) {
    const numbers expected = elements_of(w, where);
    has.insert(expected.begin(), expected.end());
    return values_of(tensor, {local, where.sizes}) == expected;
  };
  const extents zeros = extents::filled(w.shape.rank(), 0);
  bool ok = false;
  if (const auto* tensor = value.tensor())
    ok = tensor->sizes() == w.shape && check(*tensor, box::whole(w.shape), zeros);
  if (const auto* sharded = value.sharded_tensor()) {
    ok = sharded->size() == w.shape && check_cover(distribution_of(*sharded).value()).ok();
    for (const auto& one : sharded->local_shards()) ok &= check(one.tensor(), one.metadata().where(), zeros);
  }
  if (const auto* placed = value.dtensor()) {
    ok = placed->size() == w.shape;
    for (const placed_box& b : placed->layout().boxes(placed->rank()))
      ok &= check(placed->local(), b.where, b.local_offsets);
  }
  return ok ? "" : w.key + " holds something else; ";
}

}  // namespace

TEST_CASE("random models on 2-d and 3-d meshes: every form is true, moves the least, and loads onto another mesh") {
  for (std::uint64_t seed = 0; seed < random_seed::rounds(120); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto parameters = random_wanted(random);
    const described source = random_layout(random, parameters), target = random_layout(random, parameters);
    const int form = static_cast<int>(random() % 4);
    const full_state_options full{.rank0_only = random() % 2 == 0, .memory_bytes = 200};
    sharded_state_options sharded;
    if (form == 2) sharded.form = sharded_form::dtensor;
    if (form == 2 && random() % 3 == 0) sharded.mesh = target.mesh;

    std::vector<std::string> problems(world);
    std::vector<std::int64_t> lacking(world), moved(world);
    const auto ran = run_ranks(world, [&](any_communicator& comm) -> result<void> {
      const auto r = static_cast<std::size_t>(comm.rank());
      const rank_model from(source, parameters, comm.rank(), true);
      auto saved = form == 0   ? full_state_dict<host_tensor>(from.model, comm, full)
                   : form <= 2 ? sharded_state_dict<host_tensor>(from.model, comm, sharded)
                               : local_state_dict<host_tensor>(from.model, comm.rank());
      if (!saved) return std::move(saved).error();
      std::set<std::int64_t> held;
      for (const numbers& shard : from.memory) held.insert(shard.begin(), shard.end());
      for (const wanted& w : parameters) {
        std::set<std::int64_t> has;  // under both names of a tied weight, which travels once
        for (const std::string& key : {w.key, w.shared})
          if (const auto* value = key.empty() ? nullptr : saved->state.find(path{key}))
            problems[r] += check_value(*value, w, has);
        for (const std::int64_t e : has) lacking[r] += held.contains(e) ? 0 : 8;
      }
      moved[r] = saved->profile.bytes_moved;
      const described& wanted_layout = form == 3 ? source : target;
      const rank_model expected(wanted_layout, parameters, comm.rank(), true);
      rank_model to(wanted_layout, parameters, comm.rank(), false);
      auto report = load_state_dict(to.model, saved->state, comm, {.mode = load_mode::report});
      if (!report) return std::move(report).error();
      if (to.memory != expected.memory) problems[r] += "loaded something else";
      return {};
    });
    if (form == 3 && source.units.size() > 1 && !ran) {
      CHECK(ran.error().code == errc::duplicate_key);  // several units with one prefix have one local key
      continue;
    }
    INFO((ran ? "" : to_string(ran.error())));
    REQUIRE(ran);
    CHECK(problems == std::vector<std::string>(world));
    CHECK(moved == std::vector<std::int64_t>(world, std::accumulate(lacking.begin(), lacking.end(), std::int64_t{0})));
  }
}

TEST_CASE("overlapping boxes of a parameter are equal boxes, and each is what its holder's memory says") {
  for (std::uint64_t seed = 0; seed < random_seed::rounds(200); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed + 1'000'000);
    const auto parameters = random_wanted(random);
    const described d = random_layout(random, parameters);
    for (const parallel_parameters& unit : d.units)
      for (std::size_t i = 0; i < unit.parameters().size(); ++i) {
        const wanted& w = find(parameters, unit.parameters()[i].fqn);
        const distribution all = distribution_of(unit, i).value();
        REQUIRE(check_cover(all).ok());
        for (std::int32_t rank = 0; rank < world; ++rank) {
          numbers memory = flat_memory(unit, parameters, rank);
          std::set<std::int64_t> expected, found;
          for (const std::int64_t e : memory)
            if (e >= w.first && e < w.first + 1'000'000) expected.insert(e);
          const auto column = unit.column_of(rank);
          if (column) {
            const auto slots = slots_of(unit.flat(*column), i, *unit.group().position(rank),
                                        {reinterpret_cast<std::byte*>(memory.data()),
                                         dtype::int64,
                                         {},
                                         {static_cast<std::int64_t>(memory.size())},
                                         {1}})
                                   .value();
            all.fragments_of(rank, [&](const fragment& f) {
              auto copied = host_tensor::make(dtype::int64, f.where.sizes).value();
              REQUIRE(copy(adapter<host_tensor>::view(copied),
                           subview(slots.at(static_cast<std::size_t>(f.slot)), {f.local_offsets, f.where.sizes})));
              const numbers elements = elements_of(w, f.where);
              CHECK(values_of(copied, box::whole(f.where.sizes)) == elements);
              found.insert(elements.begin(), elements.end());
              return true;
            });
          }
          CHECK(found == expected);
        }
      }
  }
}
