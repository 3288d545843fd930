// SPDX-License-Identifier: Apache-2.0
// Runs the example of docs/gpu_double.md.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_double.hpp"

#include <cstdint>

using namespace gpu_double;

TEST_CASE("bytes come back whatever the order of work") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const on_double here(seed);  // a fresh double; its end checks for problems and leaks
    own_stream writes;
    own_stream reads;
    own_event written;
    on_device<int> memory(1);
    const int from = 42;
    int to = 0;
    REQUIRE(cudaMemcpyAsync(memory.data(), &from, sizeof from, host_to_device, writes) == 0);
    REQUIRE(cudaEventRecord(written, writes) == 0);
    REQUIRE(cudaStreamWaitEvent(reads, written, 0) == 0);  // without it: always a problem, often wrong bytes
    REQUIRE(cudaMemcpyAsync(&to, memory.data(), sizeof to, device_to_host, reads) == 0);
    REQUIRE(cudaStreamSynchronize(reads) == 0);
    CHECK(to == 42);
  }
}
