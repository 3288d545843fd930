// SPDX-License-Identifier: Apache-2.0
// Tests the compilation of kernels at their first use, on the doubles of NVRTC and libcudart, and its cache.
#include <shardmesh/kernels/slots.hpp>

#include <sys/stat.h>

#include <nvrtc_double.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <gpu_double/on_double.hpp>
#include <iterator>
#include <own_cache.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>
import shardmesh.cuda;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr device gpu{device_type::cuda, 0};
const cuda_options options{.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "nvrtc", .nvrtc = SHARDMESH_NVRTC_DOUBLE};

// A fresh double of both libraries, with a kernel that does nothing.
class on_doubles {
 public:
  on_doubles() {
    nvrtc_double_reset();
    double_define_kernel(cuda::kernel_program::kernel, nullptr, 0, [](void* const*, unsigned int, unsigned int) {});
  }

 private:
  on_double fresh_;
};

batch_builder cast() {
  batch_builder items;
  REQUIRE(items.copy({0, 0, dtype::bfloat16, {9}, {1}}, {0, 0, dtype::float32, {9}, {1}}));
  return items;
}
batch_builder transpose() {
  batch_builder items;
  REQUIRE(items.copy({0, 0, dtype::int8, {100, 50}, {50, 1}}, {0, 0, dtype::int8, {100, 50}, {1, 100}}));
  return items;
}
batch_builder plain_copy() {
  batch_builder items;
  REQUIRE(items.copy({0, 0, dtype::int8, {100, 50}, {50, 1}}, {0, 0, dtype::int8, {100, 50}, {50, 1}}));
  return items;
}

// Prepares a batch in a scope of its own. Returns the error's text; empty: it worked.
std::string prepared(const batch_builder& items, const cuda_options& with = options) {
  const auto scope = cuda_scope::open(with);
  if (!scope) return to_string(scope.error());
  const auto batch = scope->backend().prepare(items.items(), gpu);
  return batch ? std::string() : to_string(batch.error());
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  if (std::filesystem::exists(folder))
    for (const auto& each : std::filesystem::directory_iterator(folder)) found.push_back(each.path());
  return found;
}

unsigned mode_of(const std::filesystem::path& path) {
  struct stat found{};
  REQUIRE(::stat(path.c_str(), &found) == 0);
  return found.st_mode & 0777U;
}

}  // namespace

TEST_CASE("the first use of a kernel compiles and caches it, and the second one does not compile", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 1);
  const auto files = files_in(cache.kernels());
  REQUIRE(files.size() == 1);
  CHECK_THAT(files[0].filename().string(), ContainsSubstring("sm_90-"));
  CHECK(mode_of(files[0]) == 0600);
  CHECK(mode_of(cache.kernels()) == 0700);
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 1);
  CHECK(files_in(cache.kernels()) == files);
}

TEST_CASE("one scope loads a program once, for all batches that need it", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  const auto scope = cuda_scope::open(options);
  REQUIRE(scope);
  for (int i = 0; i < 3; ++i) REQUIRE(scope->backend().prepare(cast().items(), gpu));
  CHECK(double_calls("cudaLibraryLoadData") == 1);
}

TEST_CASE("a damaged file of the cache is compiled again and replaced", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  REQUIRE(prepared(cast()) == "");
  const auto files = files_in(cache.kernels());
  REQUIRE(files.size() == 1);
  SECTION("a byte differs") {
    std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('#');
  }
  SECTION("it is cut short") {
    std::filesystem::resize_file(files[0], std::filesystem::file_size(files[0]) - 1);
  }
  SECTION("it is empty") {
    std::filesystem::resize_file(files[0], 0);
  }
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 2);
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 2);
}

TEST_CASE("a file of the cache that others could have written is not used", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  REQUIRE(prepared(cast()) == "");
  const auto files = files_in(cache.kernels());
  REQUIRE(files.size() == 1);
  SECTION("others can write to it") {
    REQUIRE(::chmod(files[0].c_str(), 0622) == 0);
  }
  SECTION("it is a link") {
    std::filesystem::rename(files[0], cache.kernels() / "elsewhere");
    std::filesystem::create_symlink("elsewhere", files[0]);
  }
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 2);
}

TEST_CASE("a cache that others can write to is not used, and kernels are compiled without it", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  REQUIRE(std::filesystem::create_directories(cache.kernels()));
  REQUIRE(::chmod(cache.kernels().c_str(), 0777) == 0);
  CHECK(prepared(cast()) == "");
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 2);
  CHECK(files_in(cache.kernels()).empty());
  const auto checked = cuda::kernel_cache().check();
  REQUIRE(!checked);
  CHECK_THAT(to_string(checked.error()), ContainsSubstring(cache.kernels().string()) && ContainsSubstring("mode 777") &&
                                             ContainsSubstring("XDG_CACHE_HOME"));
}

TEST_CASE("a cache that cannot be made costs time only", "[double]") {
  const own_cache cache("/dev/null/cache");
  const on_doubles fresh;
  CHECK(prepared(cast()) == "");
  CHECK(prepared(cast()) == "");
  CHECK(nvrtc_double_compilations() == 2);
  const auto written = cuda::kernel_cache().write("file", std::vector<char>(3));
  REQUIRE(!written);
  CHECK(written.error().file == "/dev/null/cache/shardmesh/kernels");
}

TEST_CASE("the cache has its place in the user's folder of caches") {
  const own_cache cache;
  CHECK(cuda::kernel_cache().folder() == cache.kernels().string());
  CHECK(cuda::kernel_cache().check());  // it does not exist yet
  CHECK(!std::filesystem::exists(cache.kernels()));
  const own_cache relative("no/absolute/path");
  CHECK_THAT(cuda::kernel_cache::default_folder(), !ContainsSubstring("no/absolute/path"));
}

TEST_CASE("what the kernels must do decides what is compiled") {
  const own_cache cache;
  const on_doubles fresh;
  CHECK(prepared(plain_copy()) == "");
  CHECK(nvrtc_double_compilations() == 0);  // CUDA's own copies do it
  CHECK(prepared(transpose()) == "");
  CHECK_THAT(nvrtc_double_options(), ContainsSubstring("-DSHARDMESH_COMPUTES=false\n"));
  CHECK(prepared(cast()) == "");
  CHECK_THAT(nvrtc_double_options(), ContainsSubstring("-DSHARDMESH_COMPUTES=true\n") &&
                                         ContainsSubstring("--gpu-architecture=sm_90\n") &&
                                         ContainsSubstring("-DSHARDMESH_SLOTS=480\n"));
  CHECK(nvrtc_double_compilations() == 2);
  CHECK(files_in(cache.kernels()).size() == 2);
}

TEST_CASE("a compilation that fails has NVRTC's log, its file, and the remedies in the error", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  nvrtc_double_fail("run_tiles.cu(7): error: identifier \"half\" is undefined");
  const std::string text = prepared(cast());
  CHECK_THAT(text, ContainsSubstring(SHARDMESH_NVRTC_DOUBLE) && ContainsSubstring("NVRTC 13.0") &&
                       ContainsSubstring("NVRTC_ERROR_COMPILATION (6)") && ContainsSubstring("architecture 90") &&
                       ContainsSubstring("run_tiles.cu(7): error: identifier \"half\" is undefined") &&
                       ContainsSubstring("SHARDMESH_NVRTC") && ContainsSubstring("cuda_kernels"));
  CHECK(files_in(cache.kernels()).empty());
  nvrtc_double_fail(std::string(100'000, 'x').c_str());
  CHECK(prepared(cast()).size() < 6000);
  nvrtc_double_fail(nullptr);
  CHECK(prepared(cast()) == "");  // nothing remains of the failure
}

TEST_CASE("code that the runtime does not load is an error with its text", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  double_inject("cudaLibraryLoadData", -1, 1, double_fail, gpu_double::cuda_invalid_kernel_image);
  CHECK_THAT(prepared(cast()), ContainsSubstring("cudaLibraryLoadData") && ContainsSubstring("CUDA error 200"));
}

TEST_CASE("a library of kernels is preferred to NVRTC, unless NVRTC is chosen", "[double]") {
  const own_cache cache;
  const on_doubles fresh;
  cuda_options both = options;
  both.kernels = SHARDMESH_KERNELS_DOUBLE;
  const auto scope = cuda_scope::open(both);
  REQUIRE(scope);
  CHECK(scope->backend().name() == "cuda");
  CHECK(cuda_scope::open(options)->backend().name() == "cuda (NVRTC)");
  CHECK(nvrtc_double_compilations() == 0);
}

TEST_CASE("without kernels and with NVRTC turned off, the refusal names both remedies", "[double]") {
  const on_doubles fresh;
  cuda_options neither = options;
  neither.nvrtc = "none";
  CHECK_THAT(prepared(cast(), neither), ContainsSubstring("chose NVRTC") && ContainsSubstring("SHARDMESH_NVRTC"));
  neither.kernels = "none";
  CHECK_THAT(prepared(cast(), neither), ContainsSubstring("SHARDMESH_NVRTC") && ContainsSubstring("cuda_kernels"));
  CHECK(prepared(plain_copy(), neither) == "");
}

TEST_CASE("an NVRTC that is named must be one that the driver can follow", "[double]") {
  const on_doubles fresh;
  cuda_options other = options;
  other.nvrtc = "/nowhere/libnvrtc.so.13";
  CHECK_THAT(prepared(cast(), other), ContainsSubstring("NVRTC cannot be loaded") && ContainsSubstring(other.nvrtc));
  other.nvrtc = "libc.so.6";
  CHECK_THAT(prepared(cast(), other), ContainsSubstring("libc.so.6 has no function nvrtcVersion"));
  nvrtc_double_set_version(14, 2);
  CHECK_THAT(prepared(cast()), ContainsSubstring("NVRTC of CUDA 13 or older") && ContainsSubstring("NVRTC 14.2"));
}

TEST_CASE("a GPU that is newer than NVRTC gets PTX, and an older one is refused with the known architectures",
          "[double]") {
  const on_doubles fresh;
  const auto found = cuda::nvrtc::open(SHARDMESH_NVRTC_DOUBLE);
  REQUIRE(found);
  REQUIRE(cuda::compile(**found, {.architecture = 121, .slots = 480}));
  CHECK_THAT(nvrtc_double_options(), ContainsSubstring("--gpu-architecture=compute_90\n"));
  const auto refused = cuda::compile(**found, {.architecture = 70, .slots = 480});
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().expected == "architecture 70");
  CHECK(refused.error().found == "75 80 90");
}

TEST_CASE("a file of the cache is found only by what it was compiled from", "[double]") {
  const on_doubles fresh;
  std::set<std::string> names;
  for (const int minor : {0, 1}) {
    nvrtc_double_set_version(13, minor);
    const auto found = cuda::nvrtc::open(SHARDMESH_NVRTC_DOUBLE);
    REQUIRE(found);
    for (const int architecture : {80, 90})
      for (const bool computes : {false, true})
        for (const int slots : {kernel_bodies::few_slots, kernel_bodies::most_slots})
          names.insert(cuda::cache_name(**found, {architecture, computes, slots}));
  }
  CHECK(names.size() == 16);
}

TEST_CASE("the real NVRTC compiles the kernels for two architectures without a GPU") {
  const auto found = cuda::nvrtc::open(SHARDMESH_REAL_NVRTC);
  if (!found) SKIP("NVRTC was not found (SHARDMESH_REAL_NVRTC names it to CMake): " << to_string(found.error()));
  INFO("NVRTC " << (*found)->major << "." << (*found)->minor << ", " << (*found)->library.file());
  for (const int architecture : {75, 90})
    for (const bool computes : {false, true}) {
      INFO("architecture " << architecture << (computes ? ", computing" : ", moving"));
      const int slots = computes ? kernel_bodies::few_slots : kernel_bodies::most_slots;
      const auto code = cuda::compile(**found, {architecture, computes, slots});
      if (!code) FAIL(to_string(code.error()));
      const std::string text(code->begin(), code->end());
      REQUIRE(text.size() > 4);
      CHECK(text.substr(1, 3) == "ELF");
      CHECK_THAT(text, ContainsSubstring(cuda::kernel_program::kernel));
    }
  const auto ptx = cuda::compile(**found, {.architecture = 999, .computes = false, .slots = kernel_bodies::few_slots});
  if (!ptx) FAIL(to_string(ptx.error()));
  CHECK_THAT(std::string(ptx->begin(), ptx->end()), ContainsSubstring(".entry shardmesh_run_tiles"));
}
