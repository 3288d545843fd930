// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/kernels/cuda_kernels.h>
#include <shardmesh/kernels/batch.hpp>
#include <shardmesh/try.hpp>
#include <shardmesh/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
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

std::vector<fs::path> folders() {
  std::vector<fs::path> made;
  const fs::path own = shared_library::own_folder();
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

std::vector<int> architectures_of(std::string_view build) {
  constexpr std::string_view word = "architectures";
  const std::size_t at = build.find(word);
  std::vector<int> made;
  if (at == std::string_view::npos) return made;
  std::istringstream list{std::string(build.substr(at + word.size()))};
  for (int each = 0; list >> each;) made.push_back(each);
  return made;
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
  made->architectures = architectures_of(made->build);
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

bool kernel_library::runs_on(int architecture) const {
  if (architectures.empty() || architecture >= *std::ranges::max_element(architectures)) return true;
  return std::ranges::any_of(
      architectures, [architecture](int built) { return built / 10 == architecture / 10 && built <= architecture; });
}

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
  if (chosen == "none" || chosen == "nvrtc") return std::shared_ptr<const kernel_library>();
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
