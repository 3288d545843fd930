// SPDX-License-Identifier: Apache-2.0
// Saves an FSDP model on four ranks and loads it on two, directly from the flat shards and into them: without a state
// dict or a copy of a parameter. Adam's exp_avg is in a separate flat shard.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;
import shardmesh.fsdp;

using namespace shardmesh;

// A rank's flat shards of a layer and of its optimizer state; element i of a flat tensor has the value first + i.
struct layer {
  layer(std::int32_t rank, std::int32_t ranks, bool filled) {
    const auto flat =
        flat_parameter::make({{"weight", {5, 3}, {}}, {"bias", {5}, {}}}, {}, {.group_size = ranks}).value();
    const auto add = [&](std::vector<float>& shard, const char* prefix, const char* suffix, float first) {
      shard.resize(static_cast<std::size_t>(flat.sharded_numel()));
      const index_range held = flat.shard_range(rank);
      for (std::int64_t i = 0; filled && i < held.size; ++i)
        shard[static_cast<std::size_t>(i)] = first + static_cast<float>(held.begin + i);
      const tensor_view view{
          reinterpret_cast<std::byte*>(shard.data()), dtype::float32, {}, {flat.sharded_numel()}, {1}};
      model.units.push_back({prefix, flat, shard_group::world(ranks), view, suffix});
    };
    add(parameters, "model.layer", "", 0);
    add(exp_avg, "optim.state.layer", ".exp_avg", 100);
  }
  layer(const layer&) = delete;
  std::vector<float> parameters, exp_avg;
  fsdp_model model;
};

// Prints the boxes of the first tensor that a rank holds, in its flat shard.
result<void> print_boxes(const fsdp_model& model, std::int32_t rank) {
  SHARDMESH_TRY(auto view, local_view(model, rank));
  SHARDMESH_TRY(const const_local_state held, view.to_save());
  for (const const_local_part& part : held.tensors.front().parts)
    std::printf("rank %d holds %s of %s\n", int(rank), to_string(part.where).c_str(),
                dotted(held.tensors.front().where).c_str());
  return {};
}

int main() {
  const std::filesystem::path folder = "fsdp_in_place.checkpoint";
  auto ran = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    const layer mine(comm.rank(), 4, true);
    if (comm.rank() == 1) SHARDMESH_TRY(print_boxes(mine.model, 1));
    SHARDMESH_TRY(const save_report report, save(folder, mine.model, comm, {.overwrite = true}));
    if (comm.rank() == 0) std::printf("saved %d tensors, %d bytes\n", int(report.tensors), int(report.bytes));
    return {};
  });
  if (ran)
    ran = run_ranks(2, [&](any_communicator& comm) -> result<void> {
      const layer mine(comm.rank(), 2, false), expected(comm.rank(), 2, true);
      SHARDMESH_TRY(load(folder, mine.model, comm));  // straight into the flat shards
      if (comm.rank() == 0) std::printf("loaded onto 2 ranks\n");
      const bool is_equal = mine.parameters == expected.parameters && mine.exp_avg == expected.exp_avg;
      return is_equal ? result<void>() : fail(errc::checksum_mismatch, "other values");
    });
  if (!ran) std::fprintf(stderr, "%s\n", to_string(ran.error()).c_str());
  return ran ? 0 : 1;
}
