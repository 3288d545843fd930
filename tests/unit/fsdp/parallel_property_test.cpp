// SPDX-License-Identifier: Apache-2.0
// Compares random models over random 2-d and 3-d meshes, cut by tensor parallelism and then by FSDP, with lists of
// element numbers. A state dict in any form is right, moves the fewest bytes possible, and loads into a model on
// another mesh.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <elements.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "random_seed.hpp"

#include "parallel_models.hpp"
import shardmesh.fsdp;

using namespace shardmesh;

namespace {

using namespace parallel_models;
using state = state_dict<host_tensor>;

// Returns the error in a rank's value, and adds the value's elements to `has`.
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
  for (const std::uint64_t seed : random_seed::seeds(120)) {
    INFO("SHARDMESH_SEED=" << seed);
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
        std::set<std::int64_t> has;  // under both names of a tied weight, which is sent once
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
      CHECK(ran.error().code == errc::duplicate_key);  // several units with one prefix share a local key
      continue;
    }
    INFO((ran ? "" : to_string(ran.error())));
    REQUIRE(ran);
    CHECK(problems == std::vector<std::string>(world));
    CHECK(moved == std::vector<std::int64_t>(world, std::accumulate(lacking.begin(), lacking.end(), std::int64_t{0})));
  }
}

TEST_CASE("overlapping boxes of a parameter are equal boxes, and each is what its holder's memory says") {
  for (const std::uint64_t seed : random_seed::seeds(200)) {
    INFO("SHARDMESH_SEED=" << seed);
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
