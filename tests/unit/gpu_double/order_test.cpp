// SPDX-License-Identifier: Apache-2.0
// Tests that the double's streams run late and in any order that the program allows, which exposes missing
// synchronisation.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_double.hpp"

#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

using namespace gpu_double;

namespace {

constexpr std::size_t bytes = 64 * sizeof(int);

std::vector<int> counted(int from) {
  std::vector<int> made(64);
  std::iota(made.begin(), made.end(), from);
  return made;
}

// Copies to the device on one stream and back on another, with or without an event between them.
std::vector<int> there_and_back(std::uint64_t seed, bool with_event) {
  double_reset(seed);
  double_set_background(0);
  own_stream first;
  own_stream second;
  own_event between;
  on_device<int> middle(64);
  const std::vector<int> from = counted(1);
  std::vector<int> to(64, -1);
  REQUIRE(cudaMemcpyAsync(middle.data(), from.data(), bytes, host_to_device, first) == 0);
  if (with_event) {
    REQUIRE(cudaEventRecord(between, first) == 0);
    REQUIRE(cudaStreamWaitEvent(second, between, 0) == 0);
  }
  REQUIRE(cudaMemcpyAsync(to.data(), middle.data(), bytes, device_to_host, second) == 0);
  REQUIRE(cudaStreamSynchronize(second) == 0);
  const std::vector<int> seen = to;
  REQUIRE(cudaStreamSynchronize(first) == 0);
  return seen;
}

}  // namespace

TEST_CASE("without an event between two streams bytes are wrong for many seeds, and it is said for every one") {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    if (there_and_back(seed, false) != counted(1)) ++wrong;
    CHECK(std::string(double_problem_text()).find("nothing orders cudaMemcpyAsync") != std::string::npos);
  }
  CHECK(wrong >= 16);
  CHECK(wrong < 64);  // the right order is one of the allowed ones
}

TEST_CASE("with the event bytes are right for every seed") {
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    CHECK(there_and_back(seed, true) == counted(1));
    CHECK(std::string(double_problem_text()) == "");
  }
}

TEST_CASE("an event of another stream than the one that matters orders nothing") {
  double_reset(3);
  own_stream first;
  own_stream second;
  own_stream bystander;
  own_event event;
  on_device<int> middle(64);
  const std::vector<int> from = counted(1);
  std::vector<int> to(64, -1);
  REQUIRE(cudaMemcpyAsync(middle.data(), from.data(), bytes, host_to_device, first) == 0);
  REQUIRE(cudaEventRecord(event, bystander) == 0);
  REQUIRE(cudaStreamWaitEvent(second, event, 0) == 0);
  REQUIRE(cudaMemcpyAsync(to.data(), middle.data(), bytes, device_to_host, second) == 0);
  CHECK(double_problems() == 1);
  REQUIRE(cudaDeviceSynchronize() == 0);
}

TEST_CASE("a host that reads before it synchronises finds what was there before") {
  int early = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    double_reset(seed);
    double_set_background(0);
    own_stream stream;
    on_device<int> middle(64);
    const std::vector<int> from = counted(5);
    std::vector<int> to(64, -1);
    REQUIRE(cudaMemcpyAsync(middle.data(), from.data(), bytes, host_to_device, stream) == 0);
    REQUIRE(cudaMemcpyAsync(to.data(), middle.data(), bytes, device_to_host, stream) == 0);
    if (to != from) ++early;
    REQUIRE(cudaStreamSynchronize(stream) == 0);
    CHECK(to == from);
  }
  CHECK(early >= 8);
}

TEST_CASE("a copy reads its source when it runs, not when it is enqueued") {
  int changed = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    double_reset(seed);
    double_set_background(0);
    own_stream stream;
    on_device<int> middle(64);
    std::vector<int> from = counted(5);
    std::vector<int> to(64, -1);
    REQUIRE(cudaMemcpyAsync(middle.data(), from.data(), bytes, host_to_device, stream) == 0);
    from.assign(64, 99);
    REQUIRE(cudaMemcpyAsync(to.data(), middle.data(), bytes, device_to_host, stream) == 0);
    REQUIRE(cudaStreamSynchronize(stream) == 0);
    if (to == from) ++changed;
  }
  CHECK(changed >= 8);
}

TEST_CASE("the null stream waits for blocking streams and they for it; others do not") {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const on_double here(seed);
    own_stream blocking(0);
    on_device<int> middle(64);
    const std::vector<int> from = counted(7);
    std::vector<int> to(64, -1);
    REQUIRE(cudaMemcpyAsync(middle.data(), from.data(), bytes, host_to_device, blocking) == 0);
    REQUIRE(cudaMemcpy(to.data(), middle.data(), bytes, device_to_host) == 0);
    CHECK(to == from);
    REQUIRE(cudaMemset(middle.data(), 0, bytes) == 0);
    REQUIRE(cudaMemcpyAsync(to.data(), middle.data(), bytes, device_to_host, blocking) == 0);
    REQUIRE(cudaStreamSynchronize(blocking) == 0);
    CHECK(to == std::vector<int>(64, 0));
  }
}

TEST_CASE("queries get to the end") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const on_double here(seed);
    double_set_background(0);
    own_stream stream;
    own_event event;
    on_device<int> middle(64);
    CHECK(cudaEventQuery(event) == cuda_success);  // never recorded
    for (int i = 0; i < 20; ++i) REQUIRE(cudaMemsetAsync(middle.data(), i, bytes, stream) == 0);
    REQUIRE(cudaEventRecord(event, stream) == 0);
    int questions = 0;
    while (cudaEventQuery(event) == cuda_not_ready) ++questions;
    CHECK(questions < 10000);
    CHECK(cudaStreamQuery(stream) == cuda_success);
    CHECK(cudaGetLastError() == 0);
  }
}

TEST_CASE(
    "a host function that blocks holds up its own stream, not the question whether it is done, and no other stream") {
  const on_double here(2);
  own_stream gated;
  own_stream other;
  struct gate {
    std::atomic<bool> open = false;
    std::atomic<bool> passed = false;
  } at;
  const auto wait = [](void* argument) {
    auto* gate_of = static_cast<gate*>(argument);
    while (!gate_of->open) {
    }
    gate_of->passed = true;
  };
  on_device<int> memory(64);
  REQUIRE(cudaLaunchHostFunc(gated, wait, &at) == 0);
  for (int i = 0; i < 100; ++i) CHECK(cudaStreamQuery(gated) == cuda_not_ready);
  REQUIRE(cudaMemsetAsync(memory.data(), 0, bytes, other) == 0);
  REQUIRE(cudaStreamSynchronize(other) == 0);
  CHECK_FALSE(at.passed);
  at.open = true;
  REQUIRE(cudaStreamSynchronize(gated) == 0);
  CHECK(at.passed);
}

TEST_CASE("work goes on by itself, a little later") {
  const on_double here(4);
  own_stream stream;
  std::atomic<int> done = 0;
  for (int i = 0; i < 10; ++i)
    REQUIRE(
        cudaLaunchHostFunc(stream, [](void* argument) { ++*static_cast<std::atomic<int>*>(argument); }, &done) == 0);
  while (done < 10) {
  }
  REQUIRE(cudaStreamSynchronize(stream) == 0);
}

TEST_CASE("a host function must not call CUDA") {
  double_reset(1);
  own_stream stream;
  int answer = 0;
  REQUIRE(cudaLaunchHostFunc(
              stream, [](void* argument) { *static_cast<int*>(argument) = cudaDeviceSynchronize(); }, &answer) == 0);
  REQUIRE(cudaStreamSynchronize(stream) == 0);
  CHECK(answer == cuda_not_permitted);
  CHECK(std::string(double_problem_text()) == "cudaDeviceSynchronize was called by a host function\n");
}

TEST_CASE("a stream or event that was destroyed is no handle") {
  double_reset(1);
  void* stream = nullptr;
  void* event = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, stream_non_blocking) == 0);
  REQUIRE(cudaEventCreateWithFlags(&event, 0) == 0);
  CHECK(std::string(double_leak_text()) == "stream 0 of device 0\nevent 0\n");
  REQUIRE(cudaStreamDestroy(stream) == 0);
  REQUIRE(cudaEventDestroy(event) == 0);
  CHECK(double_leaks() == 0);
  CHECK(cudaStreamSynchronize(stream) == cuda_invalid_handle);
  CHECK(cudaEventQuery(event) == cuda_invalid_handle);
  CHECK(cudaGetLastError() == cuda_invalid_handle);
  CHECK(cudaGetLastError() == cuda_success);
  CHECK(std::string(double_problem_text()) ==
        "cudaStreamSynchronize on stream 0 of device 0, which was destroyed\n"
        "cudaEventQuery with event 0, which was destroyed\n");
}

TEST_CASE("an event is recorded on streams of its own device") {
  double_reset(1);
  own_event event;
  REQUIRE(cudaSetDevice(1) == 0);
  {
    own_stream stream;
    CHECK(cudaEventRecord(event, stream) == cuda_invalid_handle);
    CHECK(double_problems() == 1);
  }
  REQUIRE(cudaSetDevice(0) == 0);
}
