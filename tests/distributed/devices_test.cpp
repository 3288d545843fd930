// SPDX-License-Identifier: Apache-2.0
// State dicts with tensors on devices are moved, saved together, loaded, and compared. Adapters report whether a tensor
// is plain memory, and are notified of writes.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <fabric.hpp>
#include <far_tensor.hpp>
#include <filesystem>
#include <memory>
#include <on_ranks.hpp>
#include <optional>
#include <rank_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
import shardmesh.collective_checkpoint;
import shardmesh.state;
import shardmesh.test.fake_device;
import shardmesh.test.far_tensor;

using namespace shardmesh;

namespace {

constexpr auto& on_ranks = fabric::on_all_sizes<any_communicator>;

device gpu_of(const any_communicator& comm) {
  return {device_type::cuda, static_cast<std::int16_t>(comm.rank())};
}

// A dtensor of [7, 5] over all ranks; element (row, column) is 10 * row + column, or -1 if not filled.
dtensor<far_tensor> matrix(const any_communicator& comm, const char* placed, bool is_filled) {
  const auto mesh = device_mesh::make(extents{comm.size()}).value();
  const layout cut = layout::make(mesh, parse_placements(placed).value(), {7, 5}).value();
  far_tensor local = adapter<far_tensor>::allocate(dtype::float32, cut.local_shape(comm.rank()), gpu_of(comm));
  auto* const values = reinterpret_cast<float*>(local.memory.data());
  for (const placed_box& b : cut.boxes(comm.rank()))
    for (std::int64_t i = 0; i < b.where.sizes[0]; ++i)
      for (std::int64_t j = 0; j < b.where.sizes[1]; ++j)
        values[(b.local_offsets[0] + i) * local.sizes[1] + b.local_offsets[1] + j] =
            is_filled ? static_cast<float>(10 * (b.where.offsets[0] + i) + b.where.offsets[1] + j) : -1.0F;
  return dtensor<far_tensor>::make(cut, comm.rank(), std::optional(std::move(local))).value();
}

std::string what_differs(const dtensor<far_tensor>& found, const dtensor<far_tensor>& wanted) {
  if (!(found.layout() == wanted.layout())) return "another layout";
  if (found.local().memory != wanted.local().memory) return "other values";
  if (found.local().where != wanted.local().where) return "on " + to_string(found.local().where);
  return {};
}

std::shared_ptr<test::fake_backend> cuda() {
  return std::make_shared<test::fake_backend>(device_type::cuda);
}

}  // namespace

TEST_CASE("a dtensor on devices is redistributed into a new one on the same devices", "[pretended_devices]") {
  const backend_scope devices(cuda());
  on_ranks([](any_communicator& comm) -> std::string {
    const auto rows = matrix(comm, "S(0)", true);
    auto moved = redistribute(rows, matrix(comm, "S(1)", false).layout(), comm);
    if (!moved) return to_string(moved.error());
    return what_differs(*moved, matrix(comm, "S(1)", true));
  });
}

TEST_CASE("ranks save tensors of devices together and load them on another layout", "[pretended_devices]") {
  const backend_scope devices(cuda());
  const fabric::rank_folder folder("devices_test");
  on_ranks([&](any_communicator& comm) -> std::string {
    const std::filesystem::path checkpoint = folder.path / std::to_string(comm.size());
    state_dict<far_tensor> state;
    if (auto set = state.set({"model", "w"}, matrix(comm, "S(0)", true)); !set) return to_string(set.error());
    const auto held = local_view(std::as_const(state));
    if (!held) return to_string(held.error());
    const auto saved = save(checkpoint, *held, comm, {.overwrite = true});
    if (!saved) return to_string(saved.error());

    state_dict<far_tensor> again;
    if (auto set = again.set({"model", "w"}, matrix(comm, "S(1)", false)); !set) return to_string(set.error());
    auto wanted = local_view(again);
    if (!wanted) return to_string(wanted.error());
    const auto loaded = load(checkpoint, *wanted, comm);
    if (!loaded) return to_string(loaded.error());
    const dtensor<far_tensor>& found = *again.find({"model", "w"})->dtensor();
    if (found.local().writes != 1) return "written " + std::to_string(found.local().writes) + " times";
    return what_differs(found, matrix(comm, "S(1)", true));
  });
}

TEST_CASE("tensors of devices are saved in the background through a pool of the host", "[pretended_devices]") {
  const backend_scope devices(cuda());
  const fabric::rank_folder folder("devices_pool");
  on_ranks([&](any_communicator& comm) -> std::string {
    const std::filesystem::path checkpoint = folder.path / std::to_string(comm.size());
    const staging_pool pool = staging_pool::make({.max_saves = 1}).value();
    state_dict<far_tensor> state;
    if (auto set = state.set({"w"}, matrix(comm, "S(1)", true)); !set) return to_string(set.error());
    for (int run = 0; run < 2; ++run) {
      auto held = local_view(state);
      if (!held) return to_string(held.error());
      auto saving = start_save(checkpoint, *held, comm, {.overwrite = true, .staging = pool});
      if (!saving) return to_string(saving.error());
      far_tensor& local = state.find({"w"})->dtensor()->local();
      std::ranges::fill(local.memory, std::byte{0});
      if (!saving->wait()) return to_string(saving->wait().error());
      const auto loaded = load(checkpoint, *held, comm);
      if (!loaded) return to_string(loaded.error());
      if (auto wrong = what_differs(*state.find({"w"})->dtensor(), matrix(comm, "S(1)", true)); !wrong.empty())
        return wrong;
    }
    const std::int64_t bytes = (7 * matrix(comm, "S(1)", false).local().sizes[1] * 4 + 63) / 64 * 64;
    if (pool.use() != staging_use{.kept_bytes = bytes, .taken = bytes > 0 ? 1 : 0}) return "the pool kept another size";
    return {};
  });
}

TEST_CASE("a destination's adapter is told once that it was written, a source's is not", "[pretended_devices]") {
  const backend_scope devices(cuda());
  on_ranks([](any_communicator& comm) -> std::string {
    auto rows = matrix(comm, "S(0)", true);
    auto columns = matrix(comm, "S(1)", false);
    const auto from = side_of(rows.layout(), rows.local());
    const auto to = side_of(columns.layout(), columns.local());
    if (auto moved = redistribute(*from, *to, comm); !moved) return to_string(moved.error());
    if (columns.local().writes != 1 || rows.local().writes != 0) return "another number of writes";
    return what_differs(columns, matrix(comm, "S(1)", true));
  });
}

TEST_CASE("a tensor that is no plain memory is an error on every rank, with the adapter's reason",
          "[pretended_devices]") {
  const backend_scope devices(cuda());
  on_ranks([](any_communicator& comm) -> std::string {
    auto rows = matrix(comm, "S(0)", true);
    auto columns = matrix(comm, "S(1)", false);
    const std::int32_t last = comm.size() - 1;
    rows.local().is_conjugated = comm.rank() == last;
    const auto moved =
        redistribute(*side_of(rows.layout(), std::as_const(rows).local()), *side_of(columns.layout(), columns.local()),
                     comm, {.check = check_policy::every_run});
    if (moved) return "it moved";
    const std::string text = to_string(moved.error());
    if (text.find("lazily conjugated") == std::string::npos || text.find("resolve it first") == std::string::npos ||
        text.find("rank " + std::to_string(last)) == std::string::npos)
      return text;
    if (columns.local().writes != 0) return "told of a write";
    if (comm.rank() != last) return {};
    state_dict<far_tensor> state;
    if (auto set = state.set({"w"}, std::move(rows.local())); !set) return to_string(set.error());
    const auto held = local_view(std::as_const(state));
    if (held || held.error().key != "w" || held.error().code != errc::unsupported) return "local_view took it";
    return {};
  });
}
