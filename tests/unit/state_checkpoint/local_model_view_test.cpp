// SPDX-License-Identifier: Apache-2.0
// Tests FSDP models that are saved and loaded in place. The file has the values of a saved state dict. It loads into
// flat shards with another layout, without temporary tensors. See tests/unit/fsdp/local_view_test.cpp for the held
// parts.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <safetensors_files.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "random_seed.hpp"

#include "parallel_models.hpp"
import shardmesh.checkpoint_core;
import shardmesh.collective_checkpoint;
import shardmesh.state_checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

// Saves the sharded state dict, and the shards themselves.
result<void> save_both(const fsdp_model& model, any_communicator& comm, const sharded_state_options& sharded,
                       const fs::path& folder) {
  const rank_save_options options{.durable = false, .threads = 1};
  auto state = sharded_state_dict<host_tensor>(model, comm, sharded);
  if (!state) return std::move(state).error();
  const auto by_state = local_view(std::as_const(state->state));
  if (!by_state) return by_state.error();
  if (auto done = save(folder / "state", *by_state, comm, options); !done) return std::move(done).error();
  auto in_place = local_view(model, comm.rank());
  if (!in_place) return std::move(in_place).error();
  const auto held = in_place->to_save();
  if (!held) return held.error();
  if (auto done = save(folder / "held", *held, comm, options); !done) return std::move(done).error();
  return {};
}

// Every key that differs.
std::string differences(const fs::path& left, const fs::path& right) {
  const auto a = open_checkpoint(left).value(), b = open_checkpoint(right).value();
  const diff_report report = diff(whole_side(*a), whole_side(*b)).value();
  std::string all;
  for (const key_difference& one : report.differences) all += one.key + ": " + one.text + "\n";
  return all;
}

std::size_t tensors(const fs::path& checkpoint) {
  return open_checkpoint(checkpoint).value()->contents().tensors.size();
}

// Saves a model both ways, and loads the in-place save into another model.
template <class Model, class Layout, class Parameters>
std::string round_trip(std::int32_t ranks, const Layout& source, const Layout& target, const Parameters& parameters,
                       const sharded_state_options& sharded, const fs::path& folder) {
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    const Model from(source, parameters, comm.rank(), true), expected(target, parameters, comm.rank(), true);
    if (auto saved = save_both(from.model, comm, sharded, folder); !saved) return saved;
    Model to(target, parameters, comm.rank(), false);
    auto in_place = local_view(to.model, comm.rank());
    if (!in_place) return std::move(in_place).error();
    local_state wanted = in_place->to_load();
    if (auto loaded = load(folder / "held", wanted, comm, {.threads = 1}); !loaded) return std::move(loaded).error();
    if (to.memory != expected.memory) wrong[static_cast<std::size_t>(comm.rank())] = "loaded something else";
    return {};
  });
  if (!ran) return to_string(ran.error());
  for (std::size_t r = 0; r < wrong.size(); ++r)
    if (!wrong[r].empty()) return "rank " + std::to_string(r) + " " + wrong[r];
  if (tensors(folder / "held") < parameters.size()) return "not all was saved";
  return differences(folder / "state", folder / "held");
}

}  // namespace

TEST_CASE("random FSDP models: saved in place is as saved by their state dict, and loads into other flat shards") {
  for (const std::uint64_t seed : random_seed::seeds(40)) {
    INFO("SHARDMESH_SEED=" << seed);
    const safetensors_files::temporary_folder scratch;
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<std::int32_t>(1 + random() % 6);
    const auto parameters = flat_models::random_wanted(random);
    const auto source = flat_models::random_layout(random, parameters, ranks),
               target = flat_models::random_layout(random, parameters, ranks);
    CHECK(round_trip<flat_models::rank_model>(ranks, source, target, parameters, {}, scratch.path()) == "");
  }
}

TEST_CASE("random FSDP models under tensor parallelism are saved and loaded in place") {
  for (const std::uint64_t seed : random_seed::seeds(30)) {
    INFO("SHARDMESH_SEED=" << seed);
    const safetensors_files::temporary_folder scratch;
    std::mt19937_64 random(seed);
    const auto parameters = parallel_models::random_wanted(random);
    const auto source = parallel_models::random_layout(random, parameters),
               target = parallel_models::random_layout(random, parameters);
    CHECK(round_trip<parallel_models::rank_model>(parallel_models::world, source, target, parameters,
                                                  {.form = sharded_form::dtensor}, scratch.path()) == "");
  }
}

TEST_CASE("flat shards saved in the background through a pool are as they were when the save began") {
  for (const std::uint64_t seed : random_seed::seeds(12)) {
    INFO("SHARDMESH_SEED=" << seed);
    const safetensors_files::temporary_folder scratch;
    std::mt19937_64 random(seed);
    const auto parameters = flat_models::random_wanted(random);
    const auto layout = flat_models::random_layout(random, parameters, 3);
    const auto ran = run_ranks(3, [&](any_communicator& comm) -> result<void> {
      flat_models::rank_model mine(layout, parameters, comm.rank(), true);
      const flat_models::rank_model expected(layout, parameters, comm.rank(), true);
      local_model_view held = local_view(mine.model, comm.rank()).value();
      const staging_pool pool = staging_pool::make().value();
      for (const char* name : {"first", "second"}) {
        const const_local_state now = held.to_save().value();
        auto saving = start_save(scratch.path() / name, now, comm, {.durable = false, .staging = pool});
        if (!saving) return saving.error();
        for (auto& shard : mine.memory) std::fill(shard.begin(), shard.end(), -7);
        if (const auto& saved = saving->wait(); !saved) return saved.error();
        local_state wanted = held.to_load();
        if (auto loaded = load(scratch.path() / name, wanted, comm); !loaded) return std::move(loaded).error();
        // Padding belongs to no entry, so the load leaves it as it was.
        for (std::size_t u = 0; u < mine.memory.size(); ++u) {
          const auto position = layout.groups[u].position(comm.rank());
          if (position && !layout.flats[u].fill_padding(*position, mine.model.units[u].shard)) std::abort();
        }
        if (mine.memory != expected.memory) return fail(errc::checksum_mismatch, "other values");
      }
      if (pool.use().taken > 1) return fail(errc::no_memory, "the second save took memory anew");
      return {};
    });
    INFO((ran ? "" : to_string(ran.error())));
    CHECK(ran);
  }
}
