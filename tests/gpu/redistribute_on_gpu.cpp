// SPDX-License-Identifier: Apache-2.0
// How long redistributions of tensors in device memory take over NCCL, and how long the host is busy with each cached
// call. Ranks are threads; several may share a GPU. Prints one line of JSON per case.
//   gpu_redistribute RANKS [REPEAT]
// Exits with 77 and the reason if it cannot run here. SHARDMESH_CUDART, SHARDMESH_NCCL and SHARDMESH_CUDA_KERNELS name
// the libraries; without SHARDMESH_TEST_ON_GPU=1 the device is the double's, and the times mean nothing.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <on_gpu.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.transfer;
import shardmesh.nccl;

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

namespace {

struct bench_case {
  const char* name;
  std::int64_t rows, columns;
  placement from, to;
};

double microseconds(clock_type::duration took) {
  return std::chrono::duration<double, std::micro>(took).count();
}
double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

layout on_all(std::int32_t ranks, const placement& p, const bench_case& c) {
  return layout::make(device_mesh::make(extents{ranks}).value(), {p}, {c.rows, c.columns}).value();
}

// One rank's part of a case; the first rank prints it.
result<void> measure(any_communicator& control, any_communicator& comm, const cuda::stream& stream, device gpu,
                     const bench_case& c, int repeat) {
  const std::int32_t rank = comm.rank(), ranks = comm.size();
  const layout from_layout = on_all(ranks, c.from, c), to_layout = on_all(ranks, c.to, c);
  auto source = device_tensor::make(dtype::float32, from_layout.local_shape(rank), gpu);
  if (!source) return std::move(source).error();
  auto target = device_tensor::make(dtype::float32, to_layout.local_shape(rank), gpu);
  if (!target) return std::move(target).error();
  transfer_plan planned =
      plan({{distribute(from_layout).value(), distribute(to_layout).value(), dtype::float32, dtype::float32}}).value();
  auto made = executor::make(std::move(planned), comm);
  if (!made) return std::move(made).error();
  const const_tensor_binding from{{view_of(*source)}};
  const tensor_binding to{{view_of(*target)}};
  call_options call;
  call.stream = stream.ref();
  constexpr int calls = 20;
  std::vector<double> host, whole;
  for (int round = 0; round < repeat + 1; ++round) {  // the first one warms up
    if (auto met = control.all_gather({}, {}); !met) return std::move(met).error();
    const auto began = clock_type::now();
    for (int i = 0; i < calls; ++i)
      if (auto done = made->run(std::span(&from, 1), std::span(&to, 1), call); !done) return done;
    const auto enqueued = clock_type::now();
    if (auto done = stream.synchronize(); !done) return done;
    if (round == 0) continue;
    host.push_back(microseconds(enqueued - began) / calls);
    whole.push_back(microseconds(clock_type::now() - began) / calls);
  }
  if (rank != 0) return {};
  const double bytes = static_cast<double>(c.rows * c.columns * 4);
  std::printf(
      "{\"case\": \"%s\", \"ranks\": %d, \"bytes\": %.0f, \"us\": %.1f, \"gb_s\": %.2f, \"host_us_per_call\": %.1f}\n",
      c.name, ranks, bytes, median(whole), bytes / median(whole) * 1e-3, median(host));
  std::fflush(stdout);
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  const std::int32_t ranks = std::atoi(arguments[1]);
  const int repeat = count > 2 ? std::max(1, std::atoi(arguments[2])) : 9;
  const auto runtime = cuda::runtime::load();
  const auto gpus = runtime ? runtime->device_count() : result<std::int32_t>(runtime.error());
  if (!gpus) return std::printf("skipped: no GPU: %s\n", to_string(gpus.error()).c_str()), 77;
  const auto scope = cuda_scope::open({.kernels_on_host = !tests_run_on_gpu()});
  if (!scope) return std::printf("skipped: no GPU: %s\n", to_string(scope.error()).c_str()), 77;
  const std::int64_t edge = tests_run_on_gpu() ? 8192 : 64;
  const std::vector<bench_case> cases{
      {"rows to columns", edge, edge, placement::shard(0), placement::shard(1)},
      {"rows to replicated", edge, edge, placement::shard(0), placement::replicate()},
      {"replicated to rows", edge, edge, placement::replicate(), placement::shard(0)},
      {"rows to columns, 16 KiB", 64, 64, placement::shard(0), placement::shard(1)},
  };
  bool is_refused = false;
  const auto done = run_ranks(ranks, [&](any_communicator& control) -> result<void> {
    const device gpu{device_type::cuda, static_cast<std::int16_t>(control.rank() % *gpus)};
    auto nccl = nccl_communicator::make(control, gpu);
    if (!nccl) {
      if (control.rank() == 0) is_refused = *gpus < ranks;
      return std::move(nccl).error();
    }
    any_communicator comm(*nccl);
    const auto stream = cuda::stream::make(*runtime, gpu);
    if (!stream) return stream.error();
    for (const bench_case& c : cases)
      if (auto measured = measure(control, comm, *stream, gpu, c, repeat); !measured) return measured;
    return {};
  });
  if (done) return 0;
  std::printf("%s%s\n", is_refused ? "skipped: several ranks on one GPU: " : "", to_string(done.error()).c_str());
  return is_refused ? 77 : 1;
}
