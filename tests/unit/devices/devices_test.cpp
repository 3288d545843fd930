// SPDX-License-Identifier: Apache-2.0
// Tests the report of GPUs and their libraries: on the double, and where libraries are missing.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <gpu_double/on_double.hpp>
#include <own_cache.hpp>
#include <string>
#include <string_view>
#include <vector>
import shardmesh.devices;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

const device_options on_the_double{.cudart = SHARDMESH_GPU_DOUBLE,
                                   .nccl = SHARDMESH_GPU_DOUBLE,
                                   .kernels = SHARDMESH_KERNELS_DOUBLE,
                                   .nvrtc = SHARDMESH_NVRTC_DOUBLE};

gpu_library named(const device_report& report, std::string_view name) {
  const auto found = std::ranges::find(report.libraries, name, &gpu_library::name);
  REQUIRE(found != report.libraries.end());
  return *found;
}

}  // namespace

TEST_CASE("GPUs are listed with name, compute capability, and memory") {
  const on_double fresh(1, 2);
  double_set_memory(std::size_t{3} << 30);
  const device_report report = devices(on_the_double);
  CHECK(report.problem.empty());
  REQUIRE(report.gpus.size() == 2);
  CHECK(report.gpus[1] == gpu_info{{device_type::cuda, 1}, "device 1 of the double", "9.0", std::int64_t{3} << 30});
  CHECK_THAT(to_string(report), ContainsSubstring("cuda:0: device 0 of the double, compute capability 9.0, 3"));
}

TEST_CASE("libraries are reported with version and file, in a fixed order") {
  const on_double fresh;
  const device_report report = devices(on_the_double);
  std::vector<std::string> names;
  for (const gpu_library& one : report.libraries) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"driver", "cuda_runtime", "nccl", "cuda_kernels", "nvrtc", "kokkos"});
  CHECK(named(report, "driver").is_usable);
  CHECK_THAT(named(report, "driver").version, ContainsSubstring("CUDA 13.0"));
  CHECK(named(report, "cuda_runtime") == gpu_library{"cuda_runtime", true, "13.0", SHARDMESH_GPU_DOUBLE, "", ""});
  CHECK(named(report, "nccl").is_usable);
  CHECK(named(report, "nccl").file == SHARDMESH_GPU_DOUBLE);
  CHECK(named(report, "cuda_kernels") ==
        gpu_library{"cuda_kernels", true, "the double", SHARDMESH_KERNELS_DOUBLE, "", ""});
  CHECK(named(report, "nvrtc") == gpu_library{"nvrtc", true, "13.0", SHARDMESH_NVRTC_DOUBLE, "", ""});
  CHECK(report.kernels == "library");
  CHECK_THAT(to_string(report), ContainsSubstring("CUDA runtime: 13.0, " SHARDMESH_GPU_DOUBLE "\n") &&
                                    ContainsSubstring("kernels in CUDA memory: the library's\n"));
}

TEST_CASE("each missing library has its reason and its remedy, and nothing fails") {
  const device_report report =
      devices({.cudart = "/nowhere/cudart.so", .nccl = "/nowhere/nccl.so", .kernels = "/nowhere/kernels.so"});
  CHECK(report.gpus.empty());
  CHECK(report.problem == "the CUDA runtime is missing");
  for (const std::string name : {"cuda_runtime", "nccl", "cuda_kernels"}) {
    INFO(name);
    const gpu_library one = named(report, name);
    CHECK(!one.is_usable);
    CHECK_THAT(one.problem, ContainsSubstring("/nowhere/") && ContainsSubstring("cannot be loaded"));
    CHECK_THAT(one.remedy, ContainsSubstring("install") && ContainsSubstring("SHARDMESH_"));
    CHECK(one.file.empty());
  }
  CHECK_THAT(to_string(report), ContainsSubstring("no GPU: the CUDA runtime is missing\n") &&
                                    ContainsSubstring("\n    install NCCL 2.27 or newer"));
}

TEST_CASE("a machine without a device has the runtime's reason") {
  const on_double fresh(1, 0);
  const device_report report = devices(on_the_double);
  CHECK(report.gpus.empty());
  CHECK_THAT(report.problem, ContainsSubstring("cudaGetDeviceCount") && ContainsSubstring("CUDA error 100"));
  CHECK(named(report, "cuda_runtime").is_usable);
}

TEST_CASE("kernels of another version, and kernels that are turned off, are reported as such") {
  const on_double fresh;
  device_options options = on_the_double;
  options.kernels = SHARDMESH_KERNELS_DOUBLE_OF_OTHER_VERSION;
  const gpu_library other = named(devices(options), "cuda_kernels");
  CHECK(!other.is_usable);
  CHECK_THAT(other.problem, ContainsSubstring("version 1") && ContainsSubstring("version 7"));
  CHECK_THAT(other.remedy, ContainsSubstring("cuda_kernels"));
  options.kernels = "none";
  CHECK_THAT(named(devices(options), "cuda_kernels").problem, ContainsSubstring("`none` was chosen"));
}

TEST_CASE("kernels of NVRTC are reported with the folder that keeps them") {
  const on_double fresh;
  device_options options = on_the_double;
  options.kernels = "nvrtc";
  {
    const own_cache cache;
    const device_report report = devices(options);
    CHECK(report.kernels == "nvrtc");
    CHECK(report.kernel_cache == cache.kernels().string());
    CHECK(report.kernel_cache_problem.empty());
    CHECK_THAT(to_string(report), ContainsSubstring("NVRTC: 13.0, " SHARDMESH_NVRTC_DOUBLE "\n") &&
                                      ContainsSubstring("kept in " + report.kernel_cache + "\n"));
  }
  const own_cache cache("/dev/null");
  const device_report report = devices(options);
  CHECK(report.kernel_cache == "/dev/null/shardmesh/kernels");
  CHECK_THAT(report.kernel_cache_problem, ContainsSubstring(report.kernel_cache));
  CHECK_THAT(to_string(report), ContainsSubstring("and not kept\n    " + report.kernel_cache));
}

TEST_CASE("without a library of kernels and NVRTC, each has its remedy") {
  const on_double fresh;
  device_options options = on_the_double;
  options.kernels = "nvrtc";
  options.nvrtc = "none";
  CHECK(devices(options).kernels == "none");
  CHECK_THAT(named(devices(options), "nvrtc").problem, ContainsSubstring("`none` was chosen"));
  options.nvrtc = "/nowhere/nvrtc.so";
  const gpu_library missing = named(devices(options), "nvrtc");
  CHECK_THAT(missing.problem, ContainsSubstring("/nowhere/nvrtc.so"));
  CHECK_THAT(missing.remedy, ContainsSubstring("SHARDMESH_NVRTC"));
  CHECK_THAT(to_string(devices(options)), ContainsSubstring("kernels in CUDA memory: none\n"));
}

TEST_CASE("a GPU for whose architecture the library has no kernels is marked") {
  const on_double fresh(1, 1);
  device_options options = on_the_double;
  options.kernels = SHARDMESH_KERNELS_DOUBLE_FOR_OTHER_GPUS;
  const device_report report = devices(options);
  REQUIRE(report.gpus.size() == 1);
  CHECK_THAT(report.gpus[0].problem,
             ContainsSubstring("architectures 100 120") && ContainsSubstring("SHARDMESH_CUDA_KERNELS=nvrtc"));
  CHECK_THAT(to_string(report), ContainsSubstring("\n    the library of kernels has no code for it"));
}

TEST_CASE("names and paths are escaped in text") {
  device_report report;
  report.gpus.push_back({.name = "a\x1b[31m"});
  report.libraries.push_back({.name = "nccl", .is_usable = true, .version = "2\n3", .file = "/a\x7f"});
  const std::string text = to_string(report);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\x7f') == std::string::npos);
  CHECK(std::ranges::count(text, '\n') == 2);
}
