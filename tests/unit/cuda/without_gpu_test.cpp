// SPDX-License-Identifier: Apache-2.0
// Tests the errors where CUDA, or a GPU, is missing.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
import shardmesh.cuda;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a CUDA runtime that is not there is named, with what the loader says") {
  const auto loaded = cuda::runtime::load("/nowhere/libcudart.so.13");
  REQUIRE(!loaded);
  CHECK(loaded.error().code == errc::unsupported);
  CHECK_THAT(to_string(loaded.error()), ContainsSubstring("the CUDA runtime cannot be loaded"));
  CHECK(loaded.error().found == "/nowhere/libcudart.so.13");
}

TEST_CASE("a library that is no CUDA runtime is refused with the first function that it lacks") {
  const auto loaded = cuda::runtime::load("libc.so.6");
  REQUIRE(!loaded);
  CHECK(loaded.error().code == errc::unsupported);
  CHECK_THAT(to_string(loaded.error()), ContainsSubstring("libc.so.6 has no function cudaRuntimeGetVersion"));
}

TEST_CASE("a tensor on a device that no backend reaches names the device") {
  const auto made = device_tensor::make(dtype::float32, {4, 4}, {device_type::cuda, 2});
  REQUIRE(!made);
  CHECK(made.error().code == errc::unsupported);
  CHECK_THAT(to_string(made.error()), ContainsSubstring("cuda:2"));
}

TEST_CASE("the real CUDA runtime without a GPU gives its own text, and the process goes on") {
  const auto loaded = cuda::runtime::load(SHARDMESH_REAL_CUDART);
  if (!loaded) SKIP("libcudart was not found: " << to_string(loaded.error()));
  int version = 0;
  REQUIRE(loaded->call().runtime_get_version(&version) == cuda::success);
  CHECK(version >= 12000);
  if (loaded->device_count()) SKIP("this machine has a GPU");

  const auto opened = cuda_scope::open({.cudart = SHARDMESH_REAL_CUDART});
  REQUIRE(!opened);
  CHECK(opened.error().code == errc::unsupported);
  CHECK_THAT(to_string(opened.error()),
             ContainsSubstring("cudaGetDeviceCount on cuda failed: ") && ContainsSubstring("CUDA error"));
  const auto stream = cuda::stream::make(*loaded, {device_type::cuda, 0});
  REQUIRE(!stream);
  CHECK_THAT(to_string(stream.error()), ContainsSubstring("CUDA error"));
  // The host's backend is unchanged.
  CHECK(backend_for({})->get()->name() == "host");
  CHECK(!backend_for({device_type::cuda, 0}));
}
