// SPDX-License-Identifier: Apache-2.0
// Tests device memory on the double: allocating, filling, reading, and freeing in stream order, and failures.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gpu_double/on_double.hpp>
#include <numeric>
#include <on_gpu.hpp>
#include <random>
#include <random_seed.hpp>
#include <random_views.hpp>
#include <string>
#include <utility>
#include <vector>
import shardmesh.cuda;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

const cuda_options options{.cudart = SHARDMESH_GPU_DOUBLE, .kernels_on_host = !tests_run_on_gpu()};
constexpr device gpu{device_type::cuda, 1};

std::vector<std::int32_t> counted(std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), 7);
  return values;
}

tensor_view on_host(std::vector<std::int32_t>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, {count}, {1}};
}

}  // namespace

TEST_CASE("what is copied to a device and back is what it was, whatever order the device works in") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const on_double fresh(seed);
    const auto scope = cuda_scope::open(options);
    REQUIRE(scope);
    auto there = device_tensor::make(dtype::int32, {5000}, gpu);
    REQUIRE(there);
    CHECK(view_of(*there).where == gpu);
    CHECK(there->size_bytes() == 20'000);
    auto values = counted(5000);
    REQUIRE(copy_between(view_of(*there), on_host(values)));
    std::vector<std::int32_t> back(5000);
    REQUIRE(copy_between(on_host(back), view_of(std::as_const(*there))));
    CHECK(back == values);
  }
}

TEST_CASE("views of any strides are copied between the host and devices, and converted") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const on_double fresh(3);
  const auto scope = cuda_scope::open(options);
  REQUIRE(scope);
  for (int round = 0; round < 60; ++round) {
    const extents sizes = random_views::random_sizes(random);
    const auto from = random_views::make(random, sizes, dtype::int16, 2, true);
    auto there = device_tensor::make(dtype::int32, sizes, {device_type::cuda, 0});
    auto elsewhere = device_tensor::make(dtype::int32, sizes, gpu);
    REQUIRE((there && elsewhere));
    auto back = random_views::make(random, sizes, dtype::int64, 8, false);
    auto expected = back;
    expected.view.data = expected.memory.data() + (back.view.data - back.memory.data());
    REQUIRE(copy(expected.view, from.view));
    REQUIRE(copy_between(view_of(*there), from.view));
    REQUIRE(copy_between(view_of(*elsewhere), view_of(std::as_const(*there))));
    REQUIRE(copy_between(back.view, view_of(std::as_const(*elsewhere))));
    CHECK(back.memory == expected.memory);
  }
}

TEST_CASE("with a stream, memory is allocated, used and freed in its order, and nobody waits before the end") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const on_double fresh(seed);
    const auto scope = cuda_scope::open(options);
    const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
    REQUIRE((scope && runtime));
    const auto stream = cuda::stream::make(*runtime, gpu);
    REQUIRE(stream);
    const auto values = counted(3000);
    std::vector<std::int32_t> back(3000);
    const const_tensor_view given{reinterpret_cast<const std::byte*>(values.data()), dtype::int32, {}, {3000}, {1}};
    {
      auto first = device_tensor::make(dtype::int32, {3000}, gpu, stream->ref());
      auto second = device_tensor::make(dtype::int32, {3000}, gpu, stream->ref());
      REQUIRE((first && second));
      call_options call;
      call.stream = stream->ref();
      REQUIRE(copy_between(view_of(*first), given, call));
      REQUIRE(copy_between(view_of(*second), view_of(std::as_const(*first)), call));
      first = device_tensor();  // freed after the copy, in stream order
      REQUIRE(copy_between(on_host(back), view_of(std::as_const(*second)), call));
    }
    REQUIRE(stream->synchronize());
    CHECK(back == values);
    CHECK(double_calls("cudaMalloc") == 0);
  }
}

TEST_CASE("events order streams") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const on_double fresh(seed);
    const auto scope = cuda_scope::open(options);
    const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
    REQUIRE((scope && runtime));
    const auto writes = cuda::stream::make(*runtime, gpu), reads = cuda::stream::make(*runtime, gpu);
    REQUIRE((writes && reads));
    auto values = counted(2000);
    std::vector<std::int32_t> back(2000);
    auto there = device_tensor::make(dtype::int32, {2000}, gpu);
    REQUIRE(there);
    kernel_backend& backend = scope->backend();
    REQUIRE(backend.copy_across(there->data(), gpu, reinterpret_cast<const std::byte*>(values.data()), {}, 8000,
                                writes->ref()));
    const auto written = backend.record(gpu, writes->ref());
    REQUIRE(written);
    REQUIRE((*written)->hold(reads->ref()));
    REQUIRE(backend.copy_across(reinterpret_cast<std::byte*>(back.data()), {}, there->data(), gpu, 8000, reads->ref()));
    const auto read = backend.record(gpu, reads->ref());
    REQUIRE(read);
    REQUIRE((*read)->wait());
    CHECK((*read)->done().value());
    CHECK((*written)->done().value());
    CHECK(back == values);
  }
}

TEST_CASE("staging memory is pinned once and used again") {
  const on_double fresh;
  const auto scope = cuda_scope::open(options);
  REQUIRE(scope);
  for (int round = 0; round < 10; ++round) {
    const auto one = scope->backend().allocate_staging(100'000, gpu);
    const auto other = scope->backend().allocate_staging(70'000, gpu);
    REQUIRE((one && other));
    CHECK(one->where() == device{});
    CHECK(one->data() != other->data());
    std::memset(one->data(), round, 100'000);
  }
  CHECK(double_calls("cudaHostAlloc") == 2);
  // Staging buffers above `staging_keep_bytes` are pinned and freed each time.
  const auto small = cuda_backend(
      {.cudart = SHARDMESH_GPU_DOUBLE, .kernels_on_host = !tests_run_on_gpu(), .staging_keep_bytes = 1000});
  REQUIRE(small);
  for (int round = 0; round < 3; ++round) REQUIRE((*small)->allocate_staging(5000, gpu));
  CHECK(double_calls("cudaHostAlloc") == 5);
  CHECK(double_calls("cudaFreeHost") == 3);
}

TEST_CASE("memory that there is not enough of is an error with the bytes and the device", "[double]") {
  const on_double fresh;
  double_set_memory(1 << 20);
  const auto scope = cuda_scope::open(options);
  REQUIRE(scope);
  const auto made = device_tensor::make(dtype::float32, {1 << 20}, gpu);
  REQUIRE(!made);
  CHECK(made.error().code == errc::no_memory);
  CHECK_THAT(to_string(made.error()), ContainsSubstring("allocating 4.0 MiB (cudaMallocAsync) on cuda:1"));
  CHECK(device_tensor::make(dtype::float32, {1000}, gpu));
}

TEST_CASE("what the runtime refuses is an error with the operation, the device and the library's text", "[double]") {
  const on_double fresh;
  const auto scope = cuda_scope::open(options);
  REQUIRE(scope);
  auto there = device_tensor::make(dtype::int32, {100}, gpu);
  REQUIRE(there);
  auto values = counted(100);
  double_inject("cudaMemcpyAsync", -1, 1, double_fail, 719);
  const auto copied = copy_between(view_of(*there), on_host(values));
  REQUIRE(!copied);
  CHECK(copied.error().code == errc::communication);
  CHECK_THAT(to_string(copied.error()), ContainsSubstring("cudaMemcpyAsync from cpu to cuda:1 on cuda:1 failed: ") &&
                                            ContainsSubstring("CUDA error 719"));
  // The error does not leak into the next call.
  CHECK(copy_between(view_of(*there), on_host(values)));
}

TEST_CASE("devices: the current one without an index, and none beyond the last") {
  const on_double fresh(1, 2);
  const auto scope = cuda_scope::open(options);
  const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
  REQUIRE((scope && runtime));
  CHECK(runtime->resolve({device_type::cuda, -1}).value() == device{device_type::cuda, 0});
  {
    const cuda::current_device at(*runtime, gpu);
    REQUIRE(at.outcome());
    CHECK(device_tensor::make(dtype::uint8, {3}).value().where() == gpu);
  }
  CHECK(device_tensor::make(dtype::uint8, {3}).value().where() == device{device_type::cuda, 0});
  const auto beyond = runtime->resolve({device_type::cuda, 2});
  REQUIRE(!beyond);
  CHECK(beyond.error().code == errc::invalid_argument);
  CHECK(beyond.error().expected == "cuda:0 to cuda:1");
  CHECK(beyond.error().found == "cuda:2");
  CHECK(!scope->backend().reaches({device_type::cuda, 2}));
  CHECK(scope->backend().reaches({device_type::cuda, -1}));
  CHECK(!scope->backend().reaches({}));
}

TEST_CASE("tensors of sizes that cannot be are refused, and empty ones have no memory") {
  const on_double fresh;
  const auto scope = cuda_scope::open(options);
  REQUIRE(scope);
  const std::int64_t huge = std::int64_t{1} << 40;
  CHECK(device_tensor::make(dtype::float32, {huge, huge}, gpu).error().code == errc::overflow);
  CHECK(device_tensor::make(dtype::float4_e2m1fn, {3}, gpu).error().code == errc::unaligned);
  const auto empty = device_tensor::make(dtype::float32, {0, 7}, gpu);
  REQUIRE(empty);
  CHECK(empty->data() == nullptr);
  CHECK(empty->where() == gpu);
  static_assert(allocatable_tensor<device_tensor>);
}

TEST_CASE("work that fails on the device comes out of the event behind it", "[double]") {
  double_reset(1);  // the error is sticky: afterwards, nothing can be freed
  const auto scope = cuda_scope::open(options);
  const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
  REQUIRE((scope && runtime));
  const auto stream = cuda::stream::make(*runtime, gpu);
  const auto values = counted(10);
  auto there = device_tensor::make(dtype::int32, {10}, gpu, stream->ref());
  REQUIRE(there);
  double_inject("cudaMemcpyAsync", -1, 1, double_fail_later, 719);
  REQUIRE(scope->backend().copy_across(there->data(), gpu, reinterpret_cast<const std::byte*>(values.data()), {}, 40,
                                       stream->ref()));
  const auto behind = scope->backend().record(gpu, stream->ref());
  // The copy may have failed before the event is recorded.
  const auto waited = behind ? (*behind)->wait() : result<void>(behind.error());
  REQUIRE(!waited);
  CHECK(waited.error().code == errc::communication);
  CHECK_THAT(to_string(waited.error()), ContainsSubstring("on cuda:1 failed: ") && ContainsSubstring("CUDA error 719"));
  if (behind)
    CHECK_THAT(to_string(waited.error()), ContainsSubstring("work before an event (cudaEventSynchronize) on cuda:1"));
}
