// SPDX-License-Identifier: Apache-2.0
// Two processes are ranks of NCCL, and one is killed between two collectives: the other gets an error soon after its
// deadline, and its process goes on. The double cannot show this, because its ranks are threads of one process.
//   gpu_lost_rank
// Exits with 0 if that is so, with 77 and the reason if it cannot run here, and with 1 on errors. SHARDMESH_CUDART and
// SHARDMESH_NCCL name the libraries.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

import shardmesh.nccl;
import shardmesh.shared_memory;

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;
using seconds = std::chrono::duration<double>;

namespace {

constexpr std::int32_t ranks = 2, victim = 1;
constexpr std::chrono::milliseconds deadline{3000}, grace{3000};

int say(std::int32_t rank, const char* what, const std::string& text, int status) {
  std::printf("%srank %d: %s: %s\n", status == 77 ? "skipped: " : "", rank, what, text.c_str());
  std::fflush(stdout);
  return status;
}

result<void> reduce(nccl_communicator& comm, device_tensor& values, std::chrono::milliseconds within) {
  call_options options;
  options.within = within;
  auto started = comm.all_reduce(values.bytes(), values.bytes(), dtype::float32, reduce_op::sum, options);
  return started ? started->wait() : result<void>(started.error());
}

int live(const std::string& token, std::int32_t rank) {
  auto joined = shared_memory_communicator::join(token, rank, {.within = std::chrono::seconds(60)});
  if (!joined) return say(rank, "shared memory", to_string(joined.error()), 1);
  any_communicator control(std::move(*joined));
  const auto scope = cuda_scope::open({.kernels = "none"});
  if (!scope) return say(rank, "no GPU", to_string(scope.error()), 77);
  const auto runtime = cuda::runtime::load();
  if (!runtime) return say(rank, "no GPU", to_string(runtime.error()), 77);
  const std::int32_t gpus = runtime->device_count().value();
  const device gpu{device_type::cuda, static_cast<std::int16_t>(rank % gpus)};
  auto comm = nccl_communicator::make(control, gpu);
  if (!comm) return say(rank, "no communicator", to_string(comm.error()), gpus < ranks ? 77 : 1);
  auto values = device_tensor::make(dtype::float32, {1000}, gpu);
  if (!values) return say(rank, "no memory", to_string(values.error()), 1);
  if (auto done = reduce(*comm, *values, std::chrono::seconds(60)); !done)
    return say(rank, "before the loss", to_string(done.error()), 1);

  if (rank == victim) ::raise(SIGKILL);
  const auto began = clock_type::now();
  const auto done = reduce(*comm, *values, deadline);
  const auto took = clock_type::now() - began;
  const std::string after = std::to_string(seconds(took).count()) + " s";
  if (done) return say(rank, "no error without the other rank", after, 1);
  if (took > deadline + grace) return say(rank, "the error came late", after + ": " + to_string(done.error()), 1);
  if (comm->status()) return say(rank, "the communicator is sound", after, 1);
  return say(rank, ("right, after " + after).c_str(), to_string(done.error()), 0);
}

}  // namespace

int main() {
  const auto group = shared_memory_group::make(ranks).value();
  std::vector<pid_t> children;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(live(group.token(), rank));
    children.push_back(child);
  }
  int ended = 1;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (rank != victim) ended = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  return ended;
}
