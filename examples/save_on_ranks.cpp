// SPDX-License-Identifier: Apache-2.0
// Four ranks save one checkpoint together, with one file each; two ranks load it in another layout.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh;

using namespace shardmesh;

// Makes a state dict whose weight is sharded along `dim` over all ranks. `fill` gives element (row, column) its value.
result<state_dict<host_tensor>> make_state(std::int32_t rank, std::int32_t ranks, std::int32_t dim, bool fill) {
  const std::int64_t mesh_sizes[] = {ranks};
  auto mesh = device_mesh::make(mesh_sizes);
  if (!mesh) return mesh.error();
  auto cut = layout::make(*mesh, {placement::shard(dim)}, {8, 4});
  if (!cut) return cut.error();
  auto local = host_tensor::make(dtype::float32, cut->local_shape(rank));
  if (!local) return local.error();
  auto* const values = reinterpret_cast<float*>(local->bytes().data());
  const extents first = cut->first_index(rank), sizes = cut->local_shape(rank);
  for (std::int64_t row = 0; row < sizes[0]; ++row)
    for (std::int64_t column = 0; column < sizes[1]; ++column)
      values[row * sizes[1] + column] = fill ? static_cast<float>(10 * (first[0] + row) + first[1] + column) : 0.0F;
  auto weight = dtensor<host_tensor>::make(*cut, rank, *std::move(local));
  if (!weight) return weight.error();
  state_dict<host_tensor> state;
  if (auto set = state.set({"model", "weight"}, *std::move(weight)); !set) return set.error();
  if (auto set = state.set({"step"}, fill ? 1000 : 0); !set) return set.error();
  return state;
}

int main() {
  const std::filesystem::path folder = "save_on_ranks.checkpoint";
  const auto saved = run_ranks(4, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(const auto state, make_state(comm.rank(), comm.size(), 0, true));  // by rows
    SHARDMESH_TRY(const save_report report, save(folder, state, comm, {.overwrite = true}));
    if (comm.rank() == 0) std::printf("saved %d bytes in %d files\n", int(report.bytes), int(report.files));
    return {};
  });
  if (!saved) return std::fprintf(stderr, "%s\n", to_string(saved.error()).c_str()), 1;

  const auto loaded = run_ranks(2, [&](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(auto state, make_state(comm.rank(), comm.size(), 1, false));  // by columns
    SHARDMESH_TRY(load(folder, state, comm));                                   // in place, tensors and plain values
    if (comm.rank() == 1) {
      const tensor_view mine = adapter<host_tensor>::view(state.find({"model", "weight"})->dtensor()->local());
      const auto* const values = reinterpret_cast<const float*>(mine.data);
      std::printf("rank 1 of 2 has columns 2 and 3 of row 7: %g %g; step %d\n", double(values[7 * 2]),
                  double(values[7 * 2 + 1]), int(*state.find({"step"})->integer()));
      if (values[7 * 2] != 72.0F || *state.find({"step"})->integer() != 1000)
        return fail(errc::checksum_mismatch, "the values differ");
    }
    return {};
  });
  if (!loaded) return std::fprintf(stderr, "%s\n", to_string(loaded.error()).c_str()), 1;
  return 0;
}
