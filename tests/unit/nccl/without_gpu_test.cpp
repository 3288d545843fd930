// SPDX-License-Identifier: Apache-2.0
// Tests the errors on every rank where NCCL, CUDA, or a GPU is missing.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <gpu_double/on_double.hpp>
#include <mutex>
#include <string>
#include <vector>
#include <watchdog.hpp>
import shardmesh.nccl;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

// The errors of two ranks that make a communicator. With `keeps_control`, the control communicator still works
// afterwards.
std::vector<error> errors_of_two(const nccl_options& options, bool keeps_control = true) {
  const watchdog dog{std::chrono::seconds(60)};
  std::mutex lock;
  std::vector<error> errors;
  const auto done = run_ranks(2, [&](any_communicator& control) -> result<void> {
    const auto made = nccl_communicator::make(control, {device_type::cuda, 0}, options);
    {
      const std::scoped_lock locked(lock);
      if (!made) errors.push_back(made.error());
    }
    if (!keeps_control) return {};
    const auto after = control.all_gather({}, {});
    return after ? result<void>{} : result<void>(after.error());
  });
  if (keeps_control) CHECK(done);
  return errors;
}

}  // namespace

TEST_CASE("without NCCL every rank gets the error of the lowest, with what was looked for") {
  const on_double fresh;
  const auto errors = errors_of_two({.nccl = "/nowhere/libnccl.so.2", .cudart = SHARDMESH_GPU_DOUBLE});
  REQUIRE(errors.size() == 2);
  CHECK(errors[0] == errors[1]);
  CHECK(errors[0].code == errc::unsupported);
  CHECK(errors[0].ranks == std::vector<std::int32_t>{0});
  CHECK(errors[0].found == "/nowhere/libnccl.so.2");
  CHECK_THAT(
      to_string(errors[0]),
      ContainsSubstring("making a NCCL communicator of nccl_communicator::make for cuda:0: NCCL cannot be loaded"));
}

TEST_CASE("without a device every rank gets the runtime's own text") {
  double_reset(1);
  double_set_devices(0);
  const auto errors = errors_of_two({.nccl = SHARDMESH_GPU_DOUBLE, .cudart = SHARDMESH_GPU_DOUBLE});
  REQUIRE(errors.size() == 2);
  CHECK(errors[0] == errors[1]);
  CHECK(errors[0].code == errc::unsupported);
  CHECK_THAT(to_string(errors[0]), ContainsSubstring("cudaGetDeviceCount") && ContainsSubstring("CUDA error 100"));
  double_reset(1);
}

TEST_CASE("one rank without its device is told to all") {
  const on_double fresh(1, 1);
  std::mutex lock;
  std::vector<error> errors;
  REQUIRE(run_ranks(3, [&](any_communicator& control) -> result<void> {
    const auto made =
        nccl_communicator::make(control, {device_type::cuda, static_cast<std::int16_t>(control.rank() / 2)},
                                {.nccl = SHARDMESH_GPU_DOUBLE, .cudart = SHARDMESH_GPU_DOUBLE});
    const std::scoped_lock locked(lock);
    if (!made) errors.push_back(made.error());
    return {};
  }));
  REQUIRE(errors.size() == 3);
  for (const error& e : errors) {
    CHECK(e == errors[0]);
    CHECK(e.ranks == std::vector<std::int32_t>{2});
    CHECK(e.code == errc::invalid_argument);
    CHECK(e.found == "cuda:1");
  }
}

TEST_CASE("the real NCCL without a GPU gives the error that names rank and operation") {
  const char* const named = std::getenv("SHARDMESH_NCCL");
  const std::string path = named != nullptr ? named : "libnccl.so.2";
  const auto loaded = nccl::library::load(path);
  if (!loaded) SKIP("the real libnccl.so.2 was not found: " << to_string(loaded.error()));
  const auto runtime = cuda::runtime::load();
  if (runtime && runtime->device_count()) SKIP("this machine has a GPU");
  CHECK(loaded->version() >= 22700);

  // CUDA is the double's, so the real NCCL is reached; it has a CUDA runtime of its own.
  const on_double fresh;
  const auto errors = errors_of_two({.nccl = path, .cudart = SHARDMESH_GPU_DOUBLE}, false);
  REQUIRE(errors.size() == 2);
  for (const error& e : errors) {
    CHECK(e.code == errc::communication);
    REQUIRE(e.ranks.size() == 1);
    CHECK_THAT(to_string(e),
               ContainsSubstring("cuda:0") && ContainsSubstring(" failed: ") && ContainsSubstring("NCCL error"));
    CHECK_THAT(to_string(e), ContainsSubstring("ncclCommInitRankConfig") || ContainsSubstring("ncclGetUniqueId"));
  }
}

TEST_CASE("the real CUDA runtime without a GPU ends the making of a communicator on every rank") {
  const auto runtime = cuda::runtime::load(SHARDMESH_REAL_CUDART);
  if (!runtime) SKIP("libcudart was not found: " << to_string(runtime.error()));
  if (runtime->device_count()) SKIP("this machine has a GPU");
  const auto errors = errors_of_two({.nccl = SHARDMESH_GPU_DOUBLE, .cudart = SHARDMESH_REAL_CUDART});
  REQUIRE(errors.size() == 2);
  CHECK(errors[0] == errors[1]);
  CHECK(errors[0].ranks == std::vector<std::int32_t>{0});
  CHECK_THAT(to_string(errors[0]),
             ContainsSubstring("nccl_communicator::make") && ContainsSubstring("cudaGetDeviceCount on cuda failed: "));
}
