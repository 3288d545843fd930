// SPDX-License-Identifier: Apache-2.0
// Tests that faults injected into the double's NCCL give NCCL's own codes, and that an abort ends every wait.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_ranks.hpp"

#include <barrier>
#include <string>
#include <vector>

using namespace gpu_double;

TEST_CASE("a call that is made to fail returns the code and does nothing") {
  const on_double here;
  double_inject("ncclAllReduce", 1, 2, double_fail, nccl_system_error);
  nccl_on_ranks(2, true, [&](rank_on_double& at) {
    device_values<int> memory(at, 1, [](std::size_t) { return 1; });
    at.ok(ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream), "first");
    at.check(memory.read(at) == std::vector<int>{2}, "first");
    if (at.rank == 0) return;
    at.check(
        ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream) == nccl_system_error,
        "second");
    at.check(memory.read(at) == std::vector<int>{2}, "second did something");
  });
  CHECK(double_calls("ncclAllReduce") == 3);
}

TEST_CASE(
    "work that is made to fail later shows as the communicator's asynchronous error; the peer waits, and aborts") {
  for (const bool blocking : {true, false}) {
    const on_double here;
    double_inject("ncclAllReduce", 1, 1, double_fail_later, nccl_internal_error);
    nccl_on_ranks(
        2, blocking,
        [&](rank_on_double& at) {
          device_values<int> memory(at, 1, [](std::size_t) { return 1; });
          const int made = ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream);
          at.check(made == 0 || made == nccl_in_progress, "the call itself");
          int state = 0;
          for (int i = 0; i < 1000 && (state == 0 || state == nccl_in_progress); ++i) {
            at.ok(ncclCommGetAsyncError(at.comm, &state), "question");
            cudaStreamQuery(at.stream);
          }
          at.check(state == (at.rank == 1 ? nccl_internal_error : nccl_success), "state " + std::to_string(state));
          at.check(cudaStreamQuery(at.stream) == cuda_not_ready, "it does not hang");
          if (at.rank == 1)
            at.check(std::string(ncclGetLastError(at.comm)) == "a failure that was planted", "last error");
          at.ok(ncclCommAbort(at.comm), "abort");
          at.synchronize();
        },
        {.destroy = false});
  }
}

TEST_CASE("a lost rank shows to the others as a remote error, or not at all until they abort") {
  for (const int code : {static_cast<int>(nccl_remote_error), 0}) {
    const on_double here;
    double_inject("ncclSend", 2, 1, double_lose_rank, code);
    std::barrier all_here(3);
    nccl_on_ranks(3, true,
                  [&](rank_on_double& at) {
                    all_here.arrive_and_wait();
                    device_bytes out(at, 8, 1);
                    device_bytes in(at, 8, 2);
                    at.ok(ncclGroupStart(), "start");
                    if (at.rank == 2)
                      all_here.arrive_and_wait();  // rank 2 is lost after the others have enqueued their work
                    const int sent = ncclSend(out.data(), 8, nccl_uint8, (at.rank + 1) % 3, at.comm, at.stream);
                    at.check(sent == (at.rank == 2 ? nccl_system_error : nccl_success), "send " + std::to_string(sent));
                    if (at.rank != 2)
                      at.ok(ncclRecv(in.data(), 8, nccl_uint8, (at.rank + 2) % 3, at.comm, at.stream), "receive");
                    const int ended = ncclGroupEnd();
                    if (at.rank != 2) all_here.arrive_and_wait();
                    at.check(ended == (at.rank == 2 ? nccl_system_error : nccl_success) || (code != 0 && ended == code),
                             "end");
                    if (at.rank != 2) {
                      int state = 0;
                      for (int i = 0; i < 200 || (code != 0 && state != code); ++i)
                        at.ok(ncclCommGetAsyncError(at.comm, &state), "question");
                      at.check(state == code, "state " + std::to_string(state));
                    }
                    // Rank 1 may have received from rank 0, but rank 0 cannot have received from rank 2.
                    if (at.rank == 0) at.check(cudaStreamQuery(at.stream) == cuda_not_ready, "what rank 2 sends came");
                    at.ok(ncclCommAbort(at.comm), "abort");
                    at.synchronize();
                  },
                  {.destroy = false});
  }
}

TEST_CASE("a rank that never comes leaves the others in progress, and they can abort") {
  const on_double here;
  double_inject("ncclCommInitRankConfig", 1, 1, double_lose_rank, 0);
  nccl_on_ranks(3, false,
                [&](rank_on_double& at) {
                  if (at.rank != 1) {
                    int state = 0;
                    for (int i = 0; i < 200; ++i) {
                      at.ok(ncclCommGetAsyncError(at.comm, &state), "question");
                      at.check(state == nccl_in_progress, "state");
                    }
                    int count = 0;
                    at.check(ncclCommCount(at.comm, &count) == nccl_invalid_argument, "count of what is not there");
                  }
                  at.ok(ncclCommAbort(at.comm), "abort");
                },
                {.ready = false, .destroy = false});
}

TEST_CASE("an abort ends what hangs, on the rank that aborts alone; what is behind it in the stream goes on") {
  const on_double here;
  double_inject("ncclAllReduce", 0, 1, double_hang, 0);
  nccl_on_ranks(
      2, true,
      [&](rank_on_double& at) {
        device_bytes memory(at, 8, 1);
        device_bytes behind(at, 8, 1);
        at.ok(ncclAllReduce(memory.data(), memory.data(), 8, nccl_uint8, nccl_sum, at.comm, at.stream), "all_reduce");
        at.ok(cudaMemsetAsync(behind.data(), 5, 8, at.stream), "fill");
        for (int i = 0; i < 100; ++i) at.check(cudaStreamQuery(at.stream) == cuda_not_ready, "it does not hang");
        at.check(std::string(double_pending_text())
                         .find("ncclAllReduce of 8 of type 1 of rank " + std::to_string(at.rank)) != std::string::npos,
                 "what is pending");
        at.ok(ncclCommAbort(at.comm), "abort");
        at.check(behind.read(at) == std::vector<unsigned char>(8, 5), "what is behind");
      },
      {.destroy = false});
}

TEST_CASE("what hangs goes on when the test says so") {
  const on_double here;
  double_inject("ncclAllReduce", 0, 1, double_hang, 0);
  std::barrier both_here(2);
  nccl_on_ranks(2, false, [&](rank_on_double& at) {
    device_values<int> memory(at, 1, [](std::size_t) { return 1; });
    at.ready(ncclAllReduce(memory.data(), memory.data(), 1, nccl_int32, nccl_sum, at.comm, at.stream), "all_reduce");
    both_here.arrive_and_wait();
    for (int i = 0; i < 100; ++i) at.check(cudaStreamQuery(at.stream) == cuda_not_ready, "it does not hang");
    both_here.arrive_and_wait();
    if (at.rank == 1) double_release();
    at.check(memory.read(at) == std::vector<int>{2}, "sum");
  });
}

TEST_CASE("without a device every call answers so") {
  double_reset(1);
  double_set_devices(0);
  int count = 7;
  void* made = nullptr;
  CHECK(cudaGetDeviceCount(&count) == cuda_no_device);
  CHECK(count == 0);
  CHECK(cudaSetDevice(0) == cuda_no_device);
  CHECK(cudaMalloc(&made, 8) == cuda_no_device);
  CHECK(cudaHostAlloc(&made, 8, 0) == cuda_no_device);
  CHECK(cudaStreamCreateWithFlags(&made, 0) == cuda_no_device);
  CHECK(std::string(cudaGetErrorString(cudaGetLastError())) == "no CUDA-capable device is detected");
  nccl_unique_id id{};
  REQUIRE(ncclGetUniqueId(&id) == 0);
  CHECK(ncclCommInitRank(&made, 1, id, 0) == nccl_unhandled_cuda_error);
  CHECK(double_problems() == 0);
  CHECK(double_leaks() == 0);
}
