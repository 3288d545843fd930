// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
module shardmesh.cuda;

namespace shardmesh::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* variable = "SHARDMESH_NVRTC";
constexpr const char* what = "NVRTC";
constexpr std::string_view remedy =
    "name another library in SHARDMESH_NVRTC, turn NVRTC off with SHARDMESH_NVRTC=none, or install the component "
    "cuda_kernels";

std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// NVRTC opens a second library by its file name. The loader finds it only on its path, or if it is already loaded.
// NVIDIA's wheels of CUDA 13 have this library beside NVRTC, without a search path.
void load_builtins(const nvrtc& of) {
  const fs::path folder = fs::path(of.library.file()).parent_path();
  if (folder.empty()) return;
  const std::string name = "libnvrtc-builtins.so." + version_text(of.major, of.minor);
  static_cast<void>(::dlopen((folder / name).c_str(), RTLD_NOW | RTLD_LOCAL));  // if it fails, NVRTC's log says so
}

// Checks that this runtime can load code that NVRTC compiles, and that the driver can run it.
result<void> check_fit(const nvrtc& found, const runtime& cuda) {
  if (cuda.call().library_load_data == nullptr)
    return fail(errc::unsupported, cuda.file() + " cannot load compiled kernels")
        .with_values("a CUDA runtime of 12.8 or newer", "an older one")
        .with_hint("install a newer CUDA runtime, or the component cuda_kernels");
  int driver = 0;
  if (cuda.call().driver_get_version == nullptr ||
      !cuda.check(cuda.call().driver_get_version(&driver), "cudaDriverGetVersion") || driver == 0)
    return {};
  if (found.major <= driver / 1000) return {};
  return fail(errc::unsupported, "the driver cannot run code that " + found.library.file() + " compiles")
      .with_values("NVRTC of CUDA " + std::to_string(driver / 1000) + " or older",
                   "NVRTC " + version_text(found.major, found.minor))
      .with_hint(remedy);
}

int major_of(const runtime& cuda) {
  int version = 0;
  return cuda.check(cuda.call().runtime_get_version(&version), "cudaRuntimeGetVersion") ? version / 1000 : 0;
}

}  // namespace

result<std::shared_ptr<const nvrtc>> nvrtc::open(const std::string& path) {
  auto made = std::make_shared<nvrtc>();
  SHARDMESH_TRY(made->library, shared_library::open(what, path, variable, {}));
  function_loader load(made->library);
  load("nvrtcVersion", made->call.version);
  load("nvrtcGetErrorString", made->call.get_error_string);
  load("nvrtcGetNumSupportedArchs", made->call.get_num_supported_archs);
  load("nvrtcGetSupportedArchs", made->call.get_supported_archs);
  load("nvrtcCreateProgram", made->call.create_program);
  load("nvrtcDestroyProgram", made->call.destroy_program);
  load("nvrtcCompileProgram", made->call.compile_program);
  load("nvrtcGetProgramLogSize", made->call.get_program_log_size);
  load("nvrtcGetProgramLog", made->call.get_program_log);
  load("nvrtcGetCUBINSize", made->call.get_cubin_size);
  load("nvrtcGetCUBIN", made->call.get_cubin);
  load("nvrtcGetPTXSize", made->call.get_ptx_size);
  load("nvrtcGetPTX", made->call.get_ptx);
  SHARDMESH_TRY(load.outcome());
  int count = 0;
  if (made->call.version(&made->major, &made->minor) != 0 || made->call.get_num_supported_archs(&count) != 0 ||
      count <= 0 || count > 1000)
    return fail(errc::unsupported, made->library.file() + " does not report its version and architectures")
        .with_hint(remedy);
  made->architectures.resize(static_cast<std::size_t>(count));
  if (made->call.get_supported_archs(made->architectures.data()) != 0) made->architectures.clear();
  std::ranges::sort(made->architectures);
  load_builtins(*made);
  return std::shared_ptr<const nvrtc>(std::move(made));
}

std::string nvrtc::named(const std::string& path) {
  if (!path.empty()) return path;
  const char* const chosen = std::getenv(variable);
  return chosen != nullptr ? chosen : "";
}

std::vector<std::string> nvrtc::places(const runtime& cuda) {
  std::vector<std::string> names{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  if (major_of(cuda) == 12) std::swap(names[0], names[1]);
  std::vector<std::string> made;
  const auto add = [&](const fs::path& folder) {
    for (const std::string& name : names) made.push_back((folder / name).string());
  };
  const fs::path beside = fs::path(cuda.file()).parent_path();
  if (!beside.empty()) {
    add(beside);
    const fs::path wheel = beside.parent_path();  // in wheels of CUDA 12, each library has a folder of its own
    if (wheel.filename() == "cuda_runtime" && wheel.parent_path().filename() == "nvidia")
      add(wheel.parent_path() / "cuda_nvrtc" / "lib");
  }
  made.insert(made.end(), names.begin(), names.end());
  // The Python package is the folder `shardmesh` in a folder of packages, and its command line is in its subfolder
  // `bin`. The search leaves out the neighbours of any other folder, because other users may be able to write there.
  fs::path own = shared_library::own_folder();
  if (own.filename() == "bin") own = own.parent_path();
  const fs::path packages = own.parent_path();
  if (own.filename() == "shardmesh" &&
      (packages.filename() == "site-packages" || packages.filename() == "dist-packages")) {
    add(packages / "nvidia" / "cu13" / "lib");
    add(packages / "nvidia" / "cuda_nvrtc" / "lib");
  }
  add("/usr/local/cuda/lib64");
  return made;
}

result<std::shared_ptr<const nvrtc>> nvrtc::find(const runtime& cuda, const std::string& path) {
  const std::string chosen = named(path);
  if (chosen == "none") return std::shared_ptr<const nvrtc>();
  if (!chosen.empty()) {
    SHARDMESH_TRY(auto found, open(chosen));
    SHARDMESH_TRY(check_fit(*found, cuda));
    return found;
  }
  if (cuda.call().library_load_data == nullptr) return std::shared_ptr<const nvrtc>();
  for (const std::string& place : places(cuda)) {
    std::error_code code;
    if (place.find('/') != std::string::npos && !fs::exists(place, code)) continue;
    auto found = open(place);  // the loader searches for a name without a folder
    if (found && check_fit(**found, cuda)) return found;
  }
  return std::shared_ptr<const nvrtc>();
}

}  // namespace shardmesh::cuda
