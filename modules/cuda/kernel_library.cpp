// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>
#include <shardmesh/version.hpp>

#include <dlfcn.h>
#include <link.h>

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

constexpr const char* variable = "SHARDMESH_CUDA_KERNELS";
constexpr const char* what = "the library of CUDA kernels";

// The folder of the program or shared library that contains this function; empty if the loader does not know.
fs::path own_folder() {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&own_folder), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr)
    return {};
  // The loader has no name for the program. dladdr gives its first argument, which need not be a path.
  const bool is_program = map->l_name == nullptr || *map->l_name == '\0';
  std::error_code code;
  const fs::path file = fs::canonical(is_program ? "/proc/self/exe" : map->l_name, code);
  return code ? fs::path() : file.parent_path();
}

std::vector<fs::path> folders() {
  std::vector<fs::path> made;
  const fs::path own = own_folder();
  if (!own.empty()) made.push_back(own);
  // Searches above and beside only a folder of programs: other users may be able to write beside any other folder. A
  // Python package has the library above its `bin`.
  if (own.filename() == "bin") {
    made.push_back(own.parent_path());
    for (const char* const below : {"lib", "lib64", "lib/" SHARDMESH_LIBRARY_ARCHITECTURE})
      if (!std::string_view(below).ends_with('/')) made.push_back(own.parent_path() / below);
  }
  if (const std::string_view installed = SHARDMESH_INSTALL_LIBDIR; !installed.empty()) made.emplace_back(installed);
  return made;
}

std::string version_text(int version, std::string_view build) {
  return "version " + std::to_string(version) + " (" + std::string(build) + ")";
}

result<std::shared_ptr<const kernel_library>> opened(const std::string& path) {
  auto made = std::make_shared<kernel_library>();
  SHARDMESH_TRY(made->library, shared_library::open(what, path, variable, {}));
  decltype(&shardmesh_cuda_kernels_version) version = nullptr;
  decltype(&shardmesh_cuda_kernels_build) build = nullptr;
  decltype(&shardmesh_cuda_kernels_item_bytes) item_bytes = nullptr;
  function_loader load(made->library);
  load("shardmesh_cuda_kernels_version", version);
  load("shardmesh_cuda_kernels_build", build);
  load("shardmesh_cuda_kernels_item_bytes", item_bytes);
  SHARDMESH_TRY(load.outcome());
  made->build = build();
  constexpr std::string_view remedy =
      "install the component cuda_kernels of this shardmesh, or name its library in SHARDMESH_CUDA_KERNELS";
  if (version() != SHARDMESH_CUDA_KERNELS_VERSION)
    return fail(errc::unsupported, made->library.file() + " is a library of CUDA kernels of another version")
        .with_values(version_text(SHARDMESH_CUDA_KERNELS_VERSION, "shardmesh " SHARDMESH_VERSION),
                     version_text(version(), made->build))
        .with_hint(remedy);
  if (const std::size_t size = item_bytes(); size != sizeof(batch_item))
    return fail(errc::unsupported, made->library.file() + " was built for batch items of another size")
        .with_values(std::to_string(sizeof(batch_item)) + " bytes", std::to_string(size) + " bytes")
        .with_hint(remedy);
  return std::shared_ptr<const kernel_library>(std::move(made));
}

}  // namespace

std::vector<std::string> kernel_library::places() {
  const std::string plain = "libshardmesh_cuda_kernels.so";
  const std::string names[] = {plain + "." + std::to_string(SHARDMESH_CUDA_KERNELS_VERSION), plain};
  std::vector<std::string> made;
  for (const fs::path& folder : folders())
    for (const std::string& name : names) made.push_back((folder / name).string());
  made.insert(made.end(), std::begin(names), std::end(names));
  return made;
}

std::string kernel_library::named(const std::string& path) {
  if (!path.empty()) return path;
  const char* const chosen = std::getenv(variable);
  return chosen != nullptr ? chosen : "";
}

result<std::shared_ptr<const kernel_library>> kernel_library::find(const std::string& path) {
  const std::string chosen = named(path);
  if (chosen == "none") return std::shared_ptr<const kernel_library>();
  if (!chosen.empty()) return opened(chosen);
  for (const std::string& place : places()) {
    // Only the loader can find a library by a name without a folder.
    std::error_code code;
    const bool is_there = place.find('/') == std::string::npos
                              ? shared_library::open(what, place, variable, {}).has_value()
                              : fs::exists(place, code);
    if (is_there) return opened(place);
  }
  return std::shared_ptr<const kernel_library>();
}

}  // namespace shardmesh::cuda
