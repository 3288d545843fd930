// SPDX-License-Identifier: Apache-2.0
// Tests the faults that a test can inject into the double's CUDA.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_double.hpp"

#include <string>
#include <vector>

using namespace gpu_double;

TEST_CASE("the nth call of a device fails, and only that one") {
  const on_double here;
  double_inject("cudaMalloc", 1, 2, double_fail, cuda_no_memory);
  void* memory[3] = {};
  REQUIRE(cudaMalloc(&memory[0], 8) == 0);  // device 0
  REQUIRE(cudaSetDevice(1) == 0);
  REQUIRE(cudaMalloc(&memory[1], 8) == 0);
  CHECK(cudaMalloc(&memory[2], 8) == cuda_no_memory);
  CHECK(cudaPeekAtLastError() == cuda_no_memory);
  CHECK(cudaGetLastError() == cuda_no_memory);
  CHECK(cudaGetLastError() == 0);
  REQUIRE(cudaMalloc(&memory[2], 8) == 0);
  for (void* each : memory) REQUIRE(cudaFree(each) == 0);
  CHECK(double_calls("cudaMalloc") == 4);
  CHECK(double_calls("cudaMallocAsync") == 0);
}

TEST_CASE("work that fails later shows at the next synchronisation and stays; other devices go on") {
  double_reset(1);
  double_set_background(0);
  void* stream = nullptr;
  void* memory = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, stream_non_blocking) == 0);
  REQUIRE(cudaMalloc(&memory, 8) == 0);
  double_inject("cudaMemsetAsync", 0, 1, double_fail_later, cuda_illegal_address);
  CHECK(cudaMemsetAsync(memory, 0, 8, stream) == 0);
  CHECK(cudaStreamSynchronize(stream) == cuda_illegal_address);
  CHECK(cudaMemsetAsync(memory, 0, 8, stream) == cuda_illegal_address);
  CHECK(cudaFree(memory) == cuda_illegal_address);
  REQUIRE(cudaSetDevice(1) == 0);
  REQUIRE(cudaMalloc(&memory, 8) == 0);
  CHECK(cudaFree(memory) == 0);
  CHECK(double_problems() == 0);
}

TEST_CASE("work that hangs holds up its stream and what waits for its event, until it is released") {
  const on_double here;
  own_stream hung;
  own_stream waits;
  own_stream free;
  own_event event;
  on_device<unsigned char> memory(8);
  double_inject("cudaMemsetAsync", 0, 1, double_hang, 0);
  REQUIRE(cudaMemsetAsync(memory.data(), 1, 8, hung) == 0);
  REQUIRE(cudaEventRecord(event, hung) == 0);
  REQUIRE(cudaStreamWaitEvent(waits, event, 0) == 0);
  for (int i = 0; i < 100; ++i) CHECK(cudaStreamQuery(waits) == cuda_not_ready);
  CHECK(cudaStreamSynchronize(free) == 0);
  CHECK(std::string(double_pending_text()).find("cudaMemsetAsync of 8 bytes on stream 0 of device 0: made to hang\n") !=
        std::string::npos);
  double_release();
  CHECK(cudaStreamSynchronize(waits) == 0);
  std::vector<unsigned char> seen(8);
  REQUIRE(cudaMemcpy(seen.data(), memory.data(), 8, device_to_host) == 0);
  CHECK(seen == std::vector<unsigned char>(8, 1));
}
