// SPDX-License-Identifier: Apache-2.0
module;
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.devices;

import shardmesh.cuda;
import shardmesh.nccl;

namespace shardmesh {
namespace {

// CUDA's number 12080 is version 12.8.
std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

gpu_library usable(std::string name, std::string version, std::string file) {
  return {.name = std::move(name), .is_usable = true, .version = std::move(version), .file = std::move(file)};
}

// The text of an error whose hint the report replaces with a remedy.
std::string without_hint(error cause) {
  cause.hint.clear();
  return to_string(cause);
}

gpu_library missing(std::string name, std::string problem, std::string remedy) {
  return {.name = std::move(name), .problem = std::move(problem), .remedy = std::move(remedy)};
}

// The driver's own version, such as 580.65.06; empty if the system does not state it.
std::string driver_module_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  file >> version;
  return version;
}

gpu_library driver_of(const result<cuda::runtime>& runtime) {
  const std::string release = driver_module_version();
  int supported = 0;  // the newest CUDA of the driver; 0 if there is no driver
  if (runtime && runtime->call().driver_get_version != nullptr &&
      !runtime->check(runtime->call().driver_get_version(&supported), "cudaDriverGetVersion"))
    supported = 0;
  if (release.empty() && supported == 0)
    return missing("driver", "no NVIDIA driver was found",
                   "install the NVIDIA driver; in a container, start it with access to the GPUs");
  std::string version = release;
  if (supported != 0) version += (version.empty() ? "" : ", ") + ("CUDA " + cuda_version_text(supported));
  return usable("driver", std::move(version), {});
}

gpu_library runtime_library(const result<cuda::runtime>& runtime) {
  if (!runtime)
    return missing("cuda_runtime", without_hint(runtime.error()),
                   "install the CUDA runtime 12 or 13, or name its library in SHARDMESH_CUDART");
  int version = 0;
  if (!runtime->check(runtime->call().runtime_get_version(&version), "cudaRuntimeGetVersion")) version = 0;
  return usable("cuda_runtime", version != 0 ? cuda_version_text(version) : std::string(), runtime->file());
}

gpu_library nccl_library(const std::string& path) {
  const auto found = nccl::library::load(path);
  if (!found)
    return missing("nccl", without_hint(found.error()),
                   "install NCCL 2.27 or newer, or name its library in SHARDMESH_NCCL");
  return usable("nccl", nccl::version_text(found->version()), found->file());
}

using kernels_found = result<std::shared_ptr<const cuda::kernel_library>>;

gpu_library kernels_of(const kernels_found& found, const std::string& path) {
  constexpr const char* name = "cuda_kernels";
  constexpr const char* remedy =
      "install the component cuda_kernels (CMake: SHARDMESH_WITH_CUDA_KERNELS=ON), or name its library in "
      "SHARDMESH_CUDA_KERNELS";
  if (const std::string chosen = cuda::kernel_library::named(path); chosen == "none" || chosen == "nvrtc")
    return missing(name, "`" + chosen + "` was chosen, so no library is used",
                   "unset SHARDMESH_CUDA_KERNELS, if it is set");
  if (!found) return missing(name, without_hint(found.error()), remedy);
  if (*found != nullptr) return usable(name, (*found)->build, (*found)->library.file());
  std::string problem =
      "no library was found; without NVRTC, casts, sums, and scattered copies in CUDA memory are refused; looked for";
  std::string_view before = " ";
  for (const std::string& place : cuda::kernel_library::places()) {
    problem += std::string(before) + place;
    before = ", ";
  }
  return missing(name, std::move(problem), remedy);
}

gpu_library nvrtc_library(const result<cuda::runtime>& runtime, const std::string& path) {
  constexpr const char* name = "nvrtc";
  constexpr const char* remedy = "install NVRTC of CUDA 12.8 or newer, or name its library in SHARDMESH_NVRTC";
  if (cuda::nvrtc::named(path) == "none")
    return missing(name, "`none` was chosen, so no kernels are compiled", "unset SHARDMESH_NVRTC, if it is set");
  if (!runtime)
    return missing(name, "without the CUDA runtime, it is not looked for", "install the CUDA runtime first");
  const auto found = cuda::nvrtc::find(*runtime, path);
  if (!found) return missing(name, without_hint(found.error()), remedy);
  if (*found != nullptr)
    return usable(name, std::to_string((*found)->major) + "." + std::to_string((*found)->minor),
                  (*found)->library.file());
  if (runtime->call().library_load_data == nullptr)
    return missing(name, "the CUDA runtime is older than 12.8 and cannot load what NVRTC compiles",
                   "install the CUDA runtime 12.8 or newer, or the component cuda_kernels");
  std::string problem = "no NVRTC was found that the driver can follow; looked for";
  std::string_view before = " ";
  for (const std::string& place : cuda::nvrtc::places(*runtime)) {
    problem += std::string(before) + place;
    before = ", ";
  }
  return missing(name, std::move(problem), remedy);
}

// The source of the kernels that `cuda_scope::open` chooses. A library that cannot be used makes `open` fail, so the
// answer is "none".
std::string kernels_in_use(const kernels_found& library, const gpu_library& nvrtc, const std::string& path) {
  if (!library || cuda::kernel_library::named(path) == "none") return "none";
  if (*library != nullptr) return "library";
  return nvrtc.is_usable ? "nvrtc" : "none";
}

// Kokkos is chosen when shardmesh is built.
gpu_library kokkos_of_build() {
  const std::string version = SHARDMESH_KOKKOS;
  if (version.empty())
    return missing("kokkos", "this shardmesh was built without the component kokkos",
                   "build shardmesh with SHARDMESH_WITH_KOKKOS=ON, if you want kernels on Kokkos");
  return usable("kokkos", version, {});
}

gpu_info gpu_at(const cuda::runtime& runtime, std::int32_t index, const cuda::kernel_library* kernels) {
  gpu_info made{.where = {device_type::cuda, static_cast<std::int16_t>(index)}};
  const cuda::functions& call = runtime.call();
  // `check` clears the runtime's error, which the program's next call would otherwise return.
  const auto attribute = [&](int number) {
    int value = 0;
    const bool is_known = static_cast<bool>(
        runtime.check(call.device_get_attribute(&value, number, index), "cudaDeviceGetAttribute", made.where));
    return is_known ? std::to_string(value) : std::string();
  };
  const std::string major = attribute(cuda::attribute_compute_major);
  if (!major.empty()) made.compute_capability = major + "." + attribute(cuda::attribute_compute_minor);
  cuda::device_properties properties;
  if (call.get_device_properties != nullptr &&
      runtime.check(call.get_device_properties(&properties, index), "cudaGetDeviceProperties", made.where)) {
    properties.name[sizeof properties.name - 1] = '\0';
    made.name = properties.name;
    made.memory_bytes = static_cast<std::int64_t>(properties.total_memory);
  }
  if (const auto architecture = runtime.architecture(made.where);
      kernels != nullptr && architecture && !kernels->runs_on(*architecture))
    made.problem = "the library of kernels has no code for it (" + kernels->build +
                   "); set SHARDMESH_CUDA_KERNELS=nvrtc, so that NVRTC compiles the kernels";
  return made;
}

void add_gpus(const result<cuda::runtime>& runtime, const cuda::kernel_library* kernels, device_report& report) {
  if (!runtime) {
    report.problem = "the CUDA runtime is missing";
    return;
  }
  const auto count = runtime->device_count();
  if (!count) {
    report.problem = to_string(count.error());
    return;
  }
  if (*count == 0) report.problem = "the CUDA runtime lists no GPU";
  for (std::int32_t index = 0; index < *count; ++index) report.gpus.push_back(gpu_at(*runtime, index, kernels));
}

std::string_view label(std::string_view name) {
  if (name == "driver") return "NVIDIA driver";
  if (name == "cuda_runtime") return "CUDA runtime";
  if (name == "nccl") return "NCCL";
  if (name == "cuda_kernels") return "CUDA kernels";
  if (name == "nvrtc") return "NVRTC";
  return "Kokkos";
}

}  // namespace

device_report devices(const device_options& options) {
  const auto runtime = cuda::runtime::load(options.cudart);
  const kernels_found kernels = cuda::kernel_library::find(options.kernels);
  device_report report;
  add_gpus(runtime, kernels ? kernels->get() : nullptr, report);
  report.libraries.push_back(driver_of(runtime));
  report.libraries.push_back(runtime_library(runtime));
  report.libraries.push_back(nccl_library(options.nccl));
  report.libraries.push_back(kernels_of(kernels, options.kernels));
  report.libraries.push_back(nvrtc_library(runtime, options.nvrtc));
  report.kernels = kernels_in_use(kernels, report.libraries.back(), options.kernels);
  report.libraries.push_back(kokkos_of_build());
  const cuda::kernel_cache cache;
  report.kernel_cache = cache.folder();
  if (const auto checked = cache.check(); !checked) report.kernel_cache_problem = to_string(checked.error());
  return report;
}

std::string to_string(const device_report& report) {
  std::string text;
  for (const gpu_info& gpu : report.gpus) {
    text += to_string(gpu.where) + ": " + (gpu.name.empty() ? "a GPU" : escaped(gpu.name));
    if (!gpu.compute_capability.empty()) text += ", compute capability " + gpu.compute_capability;
    if (gpu.memory_bytes > 0) text += ", " + human_bytes(gpu.memory_bytes);
    text += "\n";
    if (!gpu.problem.empty()) text += "    " + escaped(gpu.problem) + "\n";
  }
  if (report.gpus.empty()) text += "no GPU: " + escaped(report.problem) + "\n";
  for (const gpu_library& one : report.libraries) {
    text += std::string(label(one.name)) + ": ";
    if (one.is_usable)
      text += escaped(one.version) + (one.file.empty() ? "" : ", " + escaped(one.file)) + "\n";
    else
      text += escaped(one.problem) + "\n    " + one.remedy + "\n";
  }
  if (report.kernels == "library") text += "kernels in CUDA memory: the library's\n";
  if (report.kernels == "none") text += "kernels in CUDA memory: none\n";
  if (report.kernels != "nvrtc") return text;
  text += "kernels in CUDA memory: compiled by NVRTC when first needed, ";
  if (report.kernel_cache_problem.empty())
    text += "kept in " + escaped(report.kernel_cache) + "\n";
  else
    text += "and not kept\n    " + escaped(report.kernel_cache_problem) + "\n";
  return text;
}

}  // namespace shardmesh
