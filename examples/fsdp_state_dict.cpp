// SPDX-License-Identifier: Apache-2.0
// A small model under FSDP on four thread ranks: its full, sharded, and local state dicts, the bytes that each of them
// moved, and the sharded one loaded onto two ranks.
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.fsdp;

using namespace shardmesh;
using state = state_dict<host_tensor>;

// A rank's part of a model with two parameters; element i of the flat tensor has the value i.
struct small_model {
  small_model(std::int32_t rank, std::int32_t ranks, bool filled) {
    auto flat = flat_parameter::make({{"weight", {5, 3}, {}}, {"bias", {5}, {}}}, {}, {.group_size = ranks}).value();
    memory.resize(static_cast<std::size_t>(flat.sharded_numel()));
    const index_range held = flat.shard_range(rank);
    for (std::int64_t i = 0; filled && i < held.size; ++i)
      memory[static_cast<std::size_t>(i)] = static_cast<float>(held.begin + i);
    tensor_view shard{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, {flat.sharded_numel()}, {1}};
    model.units.push_back({"layer", std::move(flat), shard_group::world(ranks), shard});
  }
  small_model(const small_model&) = delete;
  std::vector<float> memory;
  fsdp_model model;
};

void print(const char* form, const saved_state<host_tensor>& saved) {
  std::printf("%s: %lld bytes moved\n", form, static_cast<long long>(saved.profile.bytes_moved));
  for (const path& where : saved.state.spec().leaf_paths()) {
    std::printf("  %s", dotted(where).c_str());
    const auto* value = saved.state.find(where);
    if (value->tensor()) std::printf(" %s", to_string(value->tensor()->sizes()).c_str());
    if (value->sharded_tensor())
      for (const auto& s : value->sharded_tensor()->metadata().shards) std::printf(" %s", to_string(s).c_str());
    std::printf("\n");
  }
}

// Gives rank `rank` of two every second shard that four ranks saved.
result<void> take_over(std::vector<std::optional<state>>& saved, const std::string& key, std::int32_t rank, state& to) {
  const auto& first = *saved[0]->find(path{key})->sharded_tensor();
  sharded_tensor_metadata metadata = first.metadata();
  for (shard_metadata& m : metadata.shards) m.placement = remote_device{*m.rank() % 2, {}, {}};
  std::vector<shard<host_tensor>> own;
  for (std::size_t r = static_cast<std::size_t>(rank); r < saved.size(); r += 2)
    for (const auto& held : saved[r]->find(path{key})->sharded_tensor()->local_shards()) {
      shard_metadata m = held.metadata();
      m.placement = remote_device{rank, {}, {}};
      own.push_back(shard<host_tensor>::make(held.tensor().clone().value(), m).value());
    }
  SHARDMESH_TRY(auto made, sharded_tensor<host_tensor>::make(std::move(own), metadata, rank_group::world(2), rank));
  return to.set(path{key}, std::move(made));
}

int main() {
  std::vector<std::optional<state>> saved(4);
  auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    const small_model m(comm.rank(), 4, true);
    auto full = full_state_dict<host_tensor>(m.model, comm, {.rank0_only = true}).value();
    auto sharded = sharded_state_dict<host_tensor>(m.model, comm).value();
    auto local = local_state_dict<host_tensor>(m.model, comm.rank()).value();
    if (comm.rank() == 0) print("full", full), print("sharded", sharded), print("local", local);
    saved[static_cast<std::size_t>(comm.rank())].emplace(std::move(sharded.state));
    return {};
  });
  if (ran)
    ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
      small_model m(comm.rank(), 2, false);
      state taken;
      for (const char* key : {"layer.weight", "layer.bias"}) SHARDMESH_TRY(take_over(saved, key, comm.rank(), taken));
      SHARDMESH_TRY(load_state_dict(m.model, taken, comm));
      if (comm.rank() == 0) std::printf("loaded onto 2 ranks\n");
      return m.memory == small_model(comm.rank(), 2, true).memory ? result<void>() : fail(errc::io, "other values");
    });
  if (!ran) std::printf("%s\n", to_string(ran.error()).c_str());
  return ran ? 0 : 1;
}
