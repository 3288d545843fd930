// SPDX-License-Identifier: Apache-2.0
// Tests the double's memory: patterns, leaks, use after free, accesses out of bounds, and the order of allocations and
// frees.
#include <catch2/catch_test_macros.hpp>

#include "gpu_double/on_double.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using namespace gpu_double;

namespace {

bool says(const std::string& what) {
  return std::string(double_problem_text()).find(what) != std::string::npos;
}

std::vector<unsigned char> read(const void* device, std::size_t bytes) {
  std::vector<unsigned char> seen(bytes);
  REQUIRE(cudaMemcpy(seen.data(), device, bytes, device_to_host) == 0);
  return seen;
}

}  // namespace

TEST_CASE("fresh memory has a pattern, and says where it is") {
  const on_double here;
  REQUIRE(cudaSetDevice(3) == 0);
  void* device = nullptr;
  void* pinned = nullptr;
  REQUIRE(cudaMalloc(&device, 100) == 0);
  REQUIRE(cudaHostAlloc(&pinned, 100, 0) == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(device) % 256 == 0);
  CHECK(read(device, 100) == std::vector<unsigned char>(100, 0xCD));
  cuda_pointer_attributes of{};
  REQUIRE(cudaPointerGetAttributes(&of, static_cast<char*>(device) + 99) == 0);
  CHECK(of.type == memory_device);
  CHECK(of.device == 3);
  REQUIRE(cudaPointerGetAttributes(&of, pinned) == 0);
  CHECK(of.type == memory_host);
  CHECK(of.host_pointer == pinned);
  int plain = 0;
  REQUIRE(cudaPointerGetAttributes(&of, &plain) == 0);
  CHECK(of.type == memory_unregistered);
  REQUIRE(cudaHostRegister(&plain, sizeof plain, 0) == 0);
  REQUIRE(cudaPointerGetAttributes(&of, &plain) == 0);
  CHECK(of.type == memory_host);
  CHECK(cudaHostRegister(&plain, sizeof plain, 0) == cuda_host_memory_already_registered);
  REQUIRE(cudaHostUnregister(&plain) == 0);
  REQUIRE(cudaFree(device) == 0);
  REQUIRE(cudaFreeHost(pinned) == 0);
  REQUIRE(cudaSetDevice(0) == 0);
}

TEST_CASE("what is not freed is a leak with its size and device") {
  double_reset(1);
  void* device = nullptr;
  REQUIRE(cudaSetDevice(2) == 0);
  REQUIRE(cudaMalloc(&device, 1000) == 0);
  REQUIRE(cudaSetDevice(0) == 0);
  CHECK(double_leaks() == 1);
  CHECK(std::string(double_leak_text()) == "device memory 1 (1000 bytes on device 2)\n");
  REQUIRE(cudaFree(device) == 0);
  CHECK(double_leaks() == 0);
}

TEST_CASE("a copy from freed memory is refused, and the bytes are not the old ones") {
  double_reset(1);
  own_stream stream;
  void* memory = nullptr;
  std::vector<unsigned char> to(16, 1);
  REQUIRE(cudaMalloc(&memory, 16) == 0);
  REQUIRE(cudaMemset(memory, 7, 16) == 0);
  REQUIRE(cudaFree(memory) == 0);
  CHECK(cudaMemcpyAsync(to.data(), memory, 16, device_to_host, stream) == cuda_invalid_value);
  CHECK(says("uses, after it was freed, device memory 1 (16 bytes on device 0)"));
  CHECK(static_cast<const unsigned char*>(memory)[5] == 0xDD);
}

TEST_CASE("a copy that is enqueued behind the free of its source is seen") {
  double_reset(2);
  own_stream stream;
  void* memory = nullptr;
  std::vector<unsigned char> to(16, 1);
  REQUIRE(cudaMallocAsync(&memory, 16, stream) == 0);
  REQUIRE(cudaFreeAsync(memory, stream) == 0);
  cudaMemcpyAsync(to.data(), memory, 16, device_to_host, stream);  // refused if the free has already run
  REQUIRE(cudaStreamSynchronize(stream) == 0);
  CHECK(says("uses, after it was freed, device memory 1"));
  CHECK(to == std::vector<unsigned char>(16, 1));
}

TEST_CASE("freeing twice, or what was never allocated, is a problem and no crash") {
  double_reset(1);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 16) == 0);
  REQUIRE(cudaFree(memory) == 0);
  CHECK(cudaFree(memory) == cuda_invalid_value);
  CHECK(says("cudaFree frees device memory 1 (16 bytes on device 0) twice"));
  int plain = 0;
  CHECK(cudaFree(&plain) == cuda_invalid_value);
  CHECK(says("cudaFree of memory that was not allocated so"));
  CHECK(cudaFree(nullptr) == 0);
  REQUIRE(cudaHostAlloc(&memory, 16, 0) == 0);
  CHECK(cudaFree(memory) == cuda_invalid_value);
  CHECK(cudaFreeHost(memory) == 0);
  CHECK(double_problems() == 3);
}

TEST_CASE("copies and fills outside of an allocation are refused before a byte moves") {
  double_reset(1);
  on_device<unsigned char> memory(100);
  std::vector<unsigned char> host(200, 9);
  CHECK(cudaMemcpy(memory.data() + 1, host.data(), 100, host_to_device) == cuda_invalid_value);
  CHECK(cudaMemset(memory.data() + 99, 0, 2) == cuda_invalid_value);
  CHECK(cudaMemcpy2D(memory.data(), 40, host.data(), 40, 30, 3, host_to_device) == cuda_invalid_value);
  CHECK(double_problems() == 3);
  CHECK(says("cudaMemcpy2D of 110 bytes goes over the end of device memory 1 (100 bytes on device 0)"));
  CHECK(read(memory.data(), 100) == std::vector<unsigned char>(100, 0xCD));
  CHECK(cudaMemcpy2D(memory.data(), 40, host.data(), 40, 20, 3, host_to_device) == 0);
  CHECK(cudaMemcpy2D(memory.data(), 10, host.data(), 40, 20, 3, host_to_device) == 12);
  CHECK(double_problems() == 3);
}

TEST_CASE("a copy says rightly from where to where it goes") {
  double_reset(1);
  on_device<int> memory(4);
  int host[4] = {};
  CHECK(cudaMemcpy(host, memory.data(), 16, host_to_device) == cuda_invalid_value);
  CHECK(cudaMemcpy(memory.data(), memory.data(), 16, device_to_host) == cuda_invalid_value);
  CHECK(double_problems() == 2);
  CHECK(cudaMemcpy(host, memory.data(), 16, by_address) == 0);
  CHECK(double_problems() == 2);
}

TEST_CASE("a kernel that writes outside of memory, or into memory that is gone, is found by the pattern it destroyed") {
  double_reset(1);
  own_stream stream;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 64) == 0);
  const auto write_behind = [](void* at) { static_cast<unsigned char*>(at)[64] = 1; };
  const auto write_before = [](void* at) { static_cast<unsigned char*>(at)[-1] = 1; };
  REQUIRE(cudaLaunchHostFunc(stream, write_behind, memory) == 0);
  REQUIRE(cudaStreamSynchronize(stream) == 0);
  CHECK(std::string(double_problem_text()) == "bytes behind device memory 1 (64 bytes on device 0) were written\n");
  REQUIRE(cudaLaunchHostFunc(stream, write_before, memory) == 0);
  REQUIRE(cudaStreamSynchronize(stream) == 0);
  CHECK(says("bytes before device memory 1"));
  REQUIRE(cudaFree(memory) == 0);
  CHECK(double_problems() == 2);
  REQUIRE(cudaLaunchHostFunc(stream, [](void* at) { static_cast<unsigned char*>(at)[10] = 1; }, memory) == 0);
  REQUIRE(cudaStreamSynchronize(stream) == 0);
  CHECK(says("device memory 1 (64 bytes on device 0) was written after it was freed"));
  CHECK(double_problems() == 3);
}

TEST_CASE("a kernel that says what it touches is checked like a copy") {
  double_reset(1);
  own_stream first;
  own_stream second;
  on_device<unsigned char> memory(64);
  const auto kernel = [](void* at) { double_touch(at, 64, 1); };
  const auto too_far = [](void* at) { double_touch(at, 65, 1); };
  REQUIRE(cudaLaunchHostFunc(first, kernel, memory.data()) == 0);
  REQUIRE(cudaStreamSynchronize(first) == 0);
  CHECK(double_problems() == 0);
  REQUIRE(cudaLaunchHostFunc(first, too_far, memory.data()) == 0);
  REQUIRE(cudaStreamSynchronize(first) == 0);
  CHECK(says("goes over the end of device memory 1"));
  double_touch(memory.data(), 1, 0);
  CHECK(says("the host touches device memory 1"));
  const int before = double_problems();
  REQUIRE(cudaLaunchHostFunc(first, kernel, memory.data()) == 0);
  REQUIRE(cudaMemsetAsync(memory.data(), 1, 64, second) == 0);
  REQUIRE(cudaDeviceSynchronize() == 0);
  // The double reports the conflict when the kernel touches the memory, unless the host has already seen the kernel
  // end.
  CHECK(double_problems() >= before);
}

TEST_CASE("memory that a stream allocates is there when the stream comes to it, not before, for other streams") {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    double_reset(seed);
    double_set_background(0);
    own_stream first;
    own_stream second;
    void* memory = nullptr;
    REQUIRE(cudaMallocAsync(&memory, 16, first) == 0);
    REQUIRE(cudaMemsetAsync(memory, 7, 16, second) == 0);
    CHECK(says("nothing orders cudaMemsetAsync"));
    REQUIRE(cudaDeviceSynchronize() == 0);
    if (read(memory, 16) != std::vector<unsigned char>(16, 7)) ++lost;
    REQUIRE(cudaFreeAsync(memory, first) == 0);
  }
  CHECK(lost >= 4);
}

TEST_CASE("memory that is freed in the order of a stream lives until the stream comes to it") {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const on_double here(seed);
    own_stream stream;
    void* memory = nullptr;
    std::vector<unsigned char> to(16);
    REQUIRE(cudaMallocAsync(&memory, 16, stream) == 0);
    REQUIRE(cudaMemsetAsync(memory, 7, 16, stream) == 0);
    REQUIRE(cudaMemcpyAsync(to.data(), memory, 16, device_to_host, stream) == 0);
    REQUIRE(cudaFreeAsync(memory, stream) == 0);
    CHECK(double_leaks() == 1);  // the stream
    REQUIRE(cudaStreamSynchronize(stream) == 0);
    CHECK(to == std::vector<unsigned char>(16, 7));
  }
}

TEST_CASE("a free that nothing orders after the last use is a problem") {
  double_reset(1);
  own_stream first;
  own_stream second;
  void* memory = nullptr;
  REQUIRE(cudaMallocAsync(&memory, 16, first) == 0);
  REQUIRE(cudaStreamSynchronize(first) == 0);
  REQUIRE(cudaMemsetAsync(memory, 1, 16, second) == 0);
  REQUIRE(cudaFreeAsync(memory, first) == 0);
  CHECK(says("nothing orders cudaFreeAsync"));
}

TEST_CASE("a device has as much memory as it is given") {
  const on_double here;
  double_set_memory(1000);
  void* first = nullptr;
  void* second = nullptr;
  REQUIRE(cudaMalloc(&first, 600) == 0);
  CHECK(cudaMalloc(&second, 600) == cuda_no_memory);
  CHECK(cudaMallocAsync(&second, ~std::size_t{0}, nullptr) == cuda_no_memory);
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == 0);
  CHECK(free == 400);
  CHECK(total == 1000);
  REQUIRE(cudaSetDevice(1) == 0);
  REQUIRE(cudaMalloc(&second, 600) == 0);
  REQUIRE(cudaSetDevice(0) == 0);
  REQUIRE(cudaFree(first) == 0);
  REQUIRE(cudaFree(second) == 0);
}
