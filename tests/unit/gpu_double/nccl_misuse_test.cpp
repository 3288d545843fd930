// SPDX-License-Identifier: Apache-2.0
// Tests wrong programs on the double's NCCL: mismatching calls hang until an abort, and the double names them.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_ranks.hpp"

#include <atomic>
#include <string>
#include <vector>

using namespace gpu_double;

namespace {

bool says(const std::string& what) {
  const std::string text = double_problem_text();
  INFO(text);
  return text.find(what) != std::string::npos;
}

// Waits until the double has seen a problem, then aborts. Until then the calls hang, as in NCCL.
void abort_when_seen(rank_on_double& at, std::atomic<int>& still_hanging) {
  if (at.state() == 0 && cudaStreamQuery(at.stream) == cuda_not_ready) ++still_hanging;
  while (double_problems() == 0) cudaStreamQuery(at.stream);
  if (cudaStreamQuery(at.stream) == cuda_not_ready) ++still_hanging;
  at.ok(ncclCommAbort(at.comm), "abort");
  at.synchronize();
}

}  // namespace

TEST_CASE("ranks that start different collectives hang until they abort, and both calls are named") {
  double_reset(3);
  std::atomic<int> hanging = 0;
  nccl_on_ranks(2, false,
                [&](rank_on_double& at) {
                  device_bytes from(at, 64, 1);
                  device_bytes to(at, 64, 2);
                  at.ready(at.rank == 0
                               ? ncclAllGather(from.data(), to.data(), 8, nccl_int32, at.comm, at.stream)
                               : ncclAllReduce(from.data(), to.data(), 8, nccl_int32, nccl_sum, at.comm, at.stream),
                           "collective");
                  abort_when_seen(at, hanging);
                },
                {.destroy = false});
  CHECK(hanging >= 2);
  CHECK(
      says("collectives that do not fit together: ncclAllGather of 8 of type 2 of rank 0 of communicator 1, "
           "ncclAllReduce of 8 of type 2 of rank 1 of communicator 1"));
  CHECK(double_problems() == 1);
  CHECK(double_leaks() == 0);
}

TEST_CASE("messages of different sizes are named, and hang") {
  double_reset(4);
  std::atomic<int> hanging = 0;
  nccl_on_ranks(2, true,
                [&](rank_on_double& at) {
                  device_bytes memory(at, 64, 1);
                  at.ok(at.rank == 0 ? ncclSend(memory.data(), 8, nccl_uint8, 1, at.comm, at.stream)
                                     : ncclRecv(memory.data(), 9, nccl_uint8, 0, at.comm, at.stream),
                        "message");
                  abort_when_seen(at, hanging);
                },
                {.destroy = false});
  CHECK(hanging >= 2);
  CHECK(says("messages of different sizes: ncclSend to 1 of 8 of type 1 of rank 0"));
}

TEST_CASE("two ranks that both send first, each in a launch of its own, cannot go on") {
  double_reset(5);
  std::atomic<int> hanging = 0;
  nccl_on_ranks(2, true,
                [&](rank_on_double& at) {
                  device_bytes out(at, 64, 1);
                  device_bytes in(at, 64, 2);
                  at.ok(ncclSend(out.data(), 64, nccl_uint8, 1 - at.rank, at.comm, at.stream), "send");
                  at.ok(ncclRecv(in.data(), 64, nccl_uint8, 1 - at.rank, at.comm, at.stream), "receive");
                  abort_when_seen(at, hanging);
                },
                {.destroy = false});
  CHECK(hanging >= 2);
  CHECK(says("no rank can go on; rank 0 of communicator 1 waits in ncclSend to 1"));
}

TEST_CASE("launches of one communicator keep their order, whatever streams they are on") {
  // Rank 1's second stream is free, and its first is blocked. The second launch still waits.
  const on_double here(6);
  nccl_on_ranks(2, true, [&](rank_on_double& at) {
    rank_stream other(at);
    device_values<int> first(at, 1, [](std::size_t) { return 1; });
    device_values<int> second(at, 1, [](std::size_t) { return 10; });
    std::atomic<bool> open = at.rank == 0;
    at.ok(cudaLaunchHostFunc(
              at.stream, [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); }, &open),
          "gate");
    at.ok(ncclAllReduce(first.data(), first.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream), "first");
    at.ok(ncclAllReduce(second.data(), second.data(), 1, nccl_int32, nccl_sum, at.comm, other), "second");
    for (int i = 0; i < 50 && at.rank == 1; ++i) at.check(cudaStreamQuery(other) == cuda_not_ready, "second is done");
    open = true;
    open.notify_all();
    at.check(first.read(at) == std::vector<int>{2}, "first");
    at.ok(cudaStreamSynchronize(other), "other");
    at.check(second.read(at) == std::vector<int>{20}, "second");
  });
}

TEST_CASE("what is enqueued before a launch that is in progress has begun comes before it") {
  // The program ignores ncclInProgress: for some seeds, it copies the received bytes too early.
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    double_reset(seed);
    nccl_on_ranks(2, false, [&](rank_on_double& at) {
      device_values<int> memory(at, 1, [](std::size_t) { return 1; });
      ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream);
      const std::vector<int> early = memory.read(at);
      if (early != std::vector<int>{2}) {
        const std::scoped_lock guard(*at.lock);
        ++wrong;
      }
      at.ready(nccl_in_progress, "state");
      at.synchronize();
    });
  }
  CHECK(wrong >= 8);
}

TEST_CASE("buffers have to be memory that the communicator's device reaches, large enough, and its stream one of it") {
  double_reset(7);
  nccl_on_ranks(2, true, [&](rank_on_double& at) {
    if (at.rank == 1) return;
    int plain = 0;
    device_bytes memory(at, 64, 1);
    const auto refused = [&](int code, const std::string& what) { at.check(code == nccl_invalid_argument, what); };
    refused(ncclSend(&plain, 1, nccl_int32, 1, at.comm, at.stream), "host memory");
    refused(ncclSend(memory.data(), 17, nccl_int32, 1, at.comm, at.stream), "too small");
    refused(ncclAllGather(memory.data(), memory.data(), 12, nccl_int32, at.comm, at.stream), "too small for two ranks");
    refused(ncclSend(memory.data(), 1, nccl_int32, 2, at.comm, at.stream), "no such rank");
    refused(ncclSend(memory.data(), 1, 12, 1, at.comm, at.stream), "no such type");
    refused(ncclAllReduce(memory.data(), memory.data(), 1, nccl_float8e4m3, nccl_sum, at.comm, at.stream), "type");
    at.ok(cudaSetDevice(1), "device");
    void* other = nullptr;
    at.ok(cudaStreamCreateWithFlags(&other, stream_non_blocking), "stream");
    refused(ncclSend(memory.data(), 1, nccl_int32, 1, at.comm, other), "stream of another device");
    void* elsewhere = nullptr;
    at.ok(cudaMalloc(&elsewhere, 64), "memory");
    refused(ncclSend(elsewhere, 1, nccl_int32, 1, at.comm, at.stream), "memory of another device");
    at.ok(cudaFree(elsewhere), "free");
    at.ok(cudaStreamDestroy(other), "stream");
    at.ok(cudaSetDevice(0), "device");
  });
  CHECK(says("ncclSend of rank 0 of communicator 1 on device 0 of 4 bytes that no device reaches"));
  CHECK(says("ncclSend of rank 0 of communicator 1 on stream"));
  CHECK(double_problems() == 5);
}

TEST_CASE("a receive into bytes that the same group sends is seen") {
  double_reset(8);
  nccl_on_ranks(1, true, [&](rank_on_double& at) {
    device_bytes memory(at, 64, 1);
    at.ok(ncclGroupStart(), "start");
    at.ok(ncclSend(memory.data(), 40, nccl_uint8, 0, at.comm, at.stream), "send");
    at.ok(ncclRecv(static_cast<char*>(memory.data()) + 24, 40, nccl_uint8, 0, at.comm, at.stream), "receive");
    at.ok(ncclGroupEnd(), "end");
    at.synchronize();
  });
  CHECK(says("nothing orders a group of 2 of rank 0"));
}

TEST_CASE("a buffer that another stream writes meanwhile is seen") {
  double_reset(9);
  nccl_on_ranks(1, true, [&](rank_on_double& at) {
    device_bytes memory(at, 64, 1);
    at.synchronize();
    rank_stream other(at);
    at.ok(ncclAllReduce(memory.data(), memory.data(), 64, nccl_uint8, nccl_sum, at.comm, at.stream), "all_reduce");
    at.ok(cudaMemsetAsync(memory.data(), 3, 64, other), "fill");
    at.ok(cudaDeviceSynchronize(), "synchronize");
  });
  CHECK(says("nothing orders cudaMemsetAsync"));
}

TEST_CASE("communicators that are not made rightly are refused") {
  double_reset(10);
  nccl_unique_id id{};
  void* comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 1, id, 0) == nccl_invalid_argument);
  CHECK(says("with an id that nobody made"));
  REQUIRE(ncclGetUniqueId(&id) == 0);
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == nccl_invalid_argument);
  nccl_config config{};
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == nccl_invalid_argument);
  CHECK(says("with a configuration that was not initialised"));
  CHECK(comm == nullptr);
  // Two ranks on one device, which NCCL refuses unless its variable allows it.
  config = nccl_config_of(false);
  void* other = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == nccl_in_progress);
  CHECK(ncclCommInitRankConfig(&other, 2, id, 1, &config) == nccl_in_progress);
  int state = nccl_in_progress;
  while (state == nccl_in_progress) REQUIRE(ncclCommGetAsyncError(comm, &state) == 0);
  CHECK(state == nccl_invalid_usage);
  CHECK(double_leaks() == 2);
  CHECK(ncclCommAbort(comm) == 0);
  CHECK(ncclCommAbort(other) == 0);
  CHECK(double_leaks() == 0);
  CHECK(ncclCommCount(comm, &state) == nccl_invalid_argument);
  CHECK(says("ncclCommCount with rank 0 of communicator 1, which was destroyed"));
}
