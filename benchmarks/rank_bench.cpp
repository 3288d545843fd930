// SPDX-License-Identifier: Apache-2.0
// Times collective operations: redistributions, the sharded state dict of an FSDP model, and the plan of a save. Ranks
// are threads or, with SHARDMESH_BENCH_MPI, processes of mpirun. benchmarks/ranks.py runs it beside PyTorch over gloo.
//   shardmesh_rank_bench CASE BYTES REPEAT [--ranks N]      CASE: rows_to_columns, grid_swap, rows_to_all, fsdp,
//   fsdp_stream; save_plan, whose BYTES is the number of tensors
// Rank 0 prints {"seconds":[..],"first_seconds":s,"extra_bytes":n}: for each repetition the slowest rank's time.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rank_timing.hpp"
#ifdef SHARDMESH_BENCH_MPI
import shardmesh.mpi;
#endif
import shardmesh;
import shardmesh.fsdp;
import shardmesh.transfer;

namespace {
using namespace shardmesh;
using namespace rank_timing;

struct bench_result {
  std::vector<double> seconds;
  double first = 0;        // with planning and agreement
  std::int64_t extra = 0;  // resident memory above that before the first call
};

struct move_case {
  extents mesh;
  std::vector<placement> from, to;
};

std::optional<move_case> find_case(std::string_view name, std::int32_t ranks) {
  const auto rows = placement::shard(0), columns = placement::shard(1);
  if (name == "rows_to_columns") return move_case{{ranks}, {rows}, {columns}};
  if (name == "rows_to_all") return move_case{{ranks}, {rows}, {placement::replicate()}};
  if (name == "grid_swap") return move_case{{2, ranks / 2}, {rows, columns}, {columns, rows}};
  return {};
}

bench_result redistribute(any_communicator& comm, const move_case& c, std::int64_t bytes, int repeat) {
  std::int64_t side = 1;
  while (side * side * 4 < bytes) side *= 2;
  const extents shape{bytes / 4 / side, side};
  const device_mesh mesh = device_mesh::make(c.mesh).value();
  const layout from = layout::make(mesh, c.from, shape).value(), to = layout::make(mesh, c.to, shape).value();
  const auto local = [&](const layout& l) {
    host_tensor made = host_tensor::make(dtype::float32, l.local_shape(comm.rank())).value();
    std::memset(made.bytes().data(), 1, made.bytes().size());
    return made;
  };
  host_tensor source = local(from), target = local(to);
  const const_tensor_binding sources{{view_of(source)}};
  const tensor_binding targets{{view_of(target)}};
  bench_result found;
  std::optional<executor> made;
  const auto run = [&] { made->run(std::span(&sources, 1), std::span(&targets, 1)).value(); };
  meet(comm);
  if (comm.rank() == 0) forget_peak();
  const std::int64_t before = resident("VmRSS:");
  found.first = timed(comm, [&] {
    const auto planned =
        plan({{distribute(from).value(), distribute(to).value(), dtype::float32, dtype::float32}}).value();
    made.emplace(executor::make(planned, comm).value());
    run();
  });
  found.extra = resident("VmHWM:") - before;
  for (int i = 0; i < repeat; ++i) found.seconds.push_back(timed(comm, run));
  return found;
}

// `bytes` of parameters in units of 64 MiB: [4096, 4096] and a bias each, as in benchmarks/torch_ranks.py.
bench_result fsdp(any_communicator& comm, std::int64_t bytes, int repeat, bool streams) {
  fsdp_model model;
  std::vector<host_tensor> shards;
  for (std::int64_t i = 0; i < bytes / (std::int64_t{64} << 20); ++i) {
    const std::vector<parameter_info> infos{{.fqn = "weight", .shape = {4096, 4096}, .strides = {}},
                                            {.fqn = "bias", .shape = {4096}, .strides = {}}};
    const auto flat = flat_parameter::make(infos, {}, {.group_size = comm.size()}).value();
    shards.push_back(host_tensor::make(dtype::float32, extents{flat.sharded_numel()}).value());
    std::memset(shards.back().bytes().data(), 1, shards.back().bytes().size());
    model.units.push_back({std::to_string(i), flat, shard_group::world(comm.size()), {}});
  }
  for (std::size_t i = 0; i < shards.size(); ++i) model.units[i].shard = adapter<host_tensor>::view(shards[i]);
  bench_result found;
  meet(comm);
  if (comm.rank() == 0) forget_peak();
  meet(comm);
  const std::int64_t before = resident("VmRSS:");
  const auto act = [&] {
    if (streams)
      stream_sharded_state_dict<host_tensor>(model, comm, [](std::string_view, state_value<host_tensor>) {},
                                             {.memory_bytes = 16 << 20})
          .value();
    else
      sharded_state_dict<host_tensor>(model, comm).value();
  };
  found.first = timed(comm, act);
  found.extra = resident("VmHWM:") - before;
  for (int i = 0; i < repeat; ++i) found.seconds.push_back(timed(comm, act));
  return found;
}

// Plans the save of many tensors, each with two rows on every rank. The save ends before it makes a file.
bench_result plan_of_save(any_communicator& comm, std::int64_t tensors, int repeat) {
  constexpr std::int64_t rows = 2, columns = 8;
  std::vector<float> memory(static_cast<std::size_t>(rows * columns), 1.0F);
  const box mine{{rows * comm.rank(), 0}, {rows, columns}};
  const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::float32, {}, mine.sizes, {columns, 1}};
  local_state state;
  for (std::int64_t i = 0; i < tensors; ++i)
    state.tensors.push_back({{"layers", i, "weight"}, {rows * comm.size(), columns}, dtype::float32, {{mine, view}}});
  rank_save_options options;
  options.before = [](save_phase now) -> result<void> {
    if (now == save_phase::describe) return {};
    return fail(errc::cancelled, "only the plan is measured");
  };
  const auto act = [&] {
    const auto planned = save("planned-only", state, comm, options);
    if (planned || planned.error().code != errc::cancelled) std::abort();
  };
  bench_result found;
  meet(comm);
  if (comm.rank() == 0) forget_peak();
  meet(comm);
  const std::int64_t before = resident("VmRSS:");
  found.first = timed(comm, act);
  found.extra = resident("VmHWM:") - before;
  for (int i = 0; i < repeat; ++i) found.seconds.push_back(timed(comm, act));
  return found;
}

result<void> measure(any_communicator& comm, std::string_view name, std::int64_t bytes, int repeat) {
  const auto move = find_case(name, comm.size());
  if (!move && name != "fsdp" && name != "fsdp_stream" && name != "save_plan")
    return fail(errc::invalid_argument, "no case is named " + std::string(name));
  const bench_result found = move                  ? redistribute(comm, *move, bytes, repeat)
                             : name == "save_plan" ? plan_of_save(comm, bytes, repeat)
                                                   : fsdp(comm, bytes, repeat, name == "fsdp_stream");
  if (comm.rank() != 0) return {};
  std::printf("{\"seconds\":[");
  for (std::size_t i = 0; i < found.seconds.size(); ++i) std::printf("%s%.9f", i ? "," : "", found.seconds[i]);
  std::printf("],\"first_seconds\":%.9f,\"extra_bytes\":%lld}\n", found.first, static_cast<long long>(found.extra));
  return {};
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const std::string_view name = words[1];
  const std::int64_t bytes = std::atoll(words[2]);
  const int repeat = std::atoi(words[3]);
#ifdef SHARDMESH_BENCH_MPI
  any_communicator comm(mpi_communicator::world().value());
  const auto done = measure(comm, name, bytes, repeat);
#else
  const std::int32_t ranks = count > 5 ? std::atoi(words[5]) : 4;
  const auto done = run_ranks(ranks, [&](any_communicator& comm) { return measure(comm, name, bytes, repeat); });
#endif
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
