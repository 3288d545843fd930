// SPDX-License-Identifier: Apache-2.0
// Runs `shardmesh devices` on the double of the GPU libraries, and without any library.
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <run_tool.hpp>
#include <string>

using nlohmann::json;

namespace {

// Names the libraries in the environment of a run.
std::string libraries(const std::string& cudart, const std::string& nccl) {
  return "export SHARDMESH_CUDART=" + cudart + " SHARDMESH_NCCL=" + nccl +
         " SHARDMESH_CUDA_KERNELS=none XDG_CACHE_HOME=/dev/null; ";
}

const std::string on_the_double = libraries(SHARDMESH_GPU_DOUBLE, SHARDMESH_GPU_DOUBLE);
const std::string without_libraries = libraries("/nowhere/cudart.so", "/nowhere/nccl.so");

}  // namespace

TEST_CASE("devices lists the double's GPUs and libraries, in text and in JSON") {
  const auto text = run_tool("devices", on_the_double);
  CHECK(text.status == 0);
  CHECK(text.err.empty());
  CHECK(text.out.starts_with("cuda:0: device 0 of the double, compute capability 9.0, "));
  CHECK(text.out.find("CUDA runtime: 13.0, " SHARDMESH_GPU_DOUBLE "\n") != std::string::npos);

  const auto run = run_tool("devices --json", on_the_double);
  CHECK(run.status == 0);
  const json document = json::parse(run.out);
  REQUIRE(document["gpus"].size() == 8);
  CHECK(document["gpus"][7]["device"] == "cuda:7");
  CHECK(document["gpus"][7]["name"] == "device 7 of the double");
  CHECK(document["gpus"][7]["compute_capability"] == "9.0");
  CHECK(document["gpus"][7]["memory_bytes"].get<std::int64_t>() > 0);
  CHECK(document["problem"].is_null());
  CHECK(document["libraries"]["nccl"]["usable"] == true);
  CHECK(document["libraries"]["nccl"]["file"] == SHARDMESH_GPU_DOUBLE);
  CHECK(document["libraries"]["cuda_kernels"]["usable"] == false);
  CHECK(document["gpus"][7]["problem"].is_null());
  CHECK(document["kernels"] == "none");
  CHECK(document["kernel_cache"]["folder"] == "/dev/null/shardmesh/kernels");
  CHECK(document["kernel_cache"]["problem"].get<std::string>().find("Not a directory") != std::string::npos);
}

TEST_CASE("devices without any library exits with 0, and says what to install") {
  const auto text = run_tool("devices", without_libraries);
  CHECK(text.status == 0);
  CHECK(text.err.empty());
  CHECK(text.out.starts_with("no GPU: the CUDA runtime is missing\n"));
  CHECK(text.out.find("install the CUDA runtime 12 or 13") != std::string::npos);

  const auto run = run_tool("devices --json", without_libraries);
  CHECK(run.status == 0);
  const json document = json::parse(run.out);
  CHECK(document["gpus"].empty());
  CHECK(document["problem"] == "the CUDA runtime is missing");
  const json& nccl = document["libraries"]["nccl"];
  CHECK(nccl["usable"] == false);
  CHECK(nccl["file"].is_null());
  CHECK(nccl["problem"].get<std::string>().find("/nowhere/nccl.so") != std::string::npos);
  CHECK(nccl["remedy"].get<std::string>().find("SHARDMESH_NCCL") != std::string::npos);
}
