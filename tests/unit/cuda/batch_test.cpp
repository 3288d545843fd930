// SPDX-License-Identifier: Apache-2.0
// Runs batches on the double: the host's kernels as host functions, CUDA's copies where there are no kernels, and
// kernels that the double of NVRTC compiled. All results are compared with the host backend's.
#include <shardmesh/kernels/cut_tiles.hpp>
#include <shardmesh/kernels/device_tile.hpp>
#include <shardmesh/kernels/slots.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <cstdint>
#include <gpu_double/on_double.hpp>
#include <memory>
#include <on_gpu.hpp>
#include <own_cache.hpp>
#include <random>
#include <random_seed.hpp>
#include <random_views.hpp>
#include <shardmesh/version.hpp>
#include <string>
#include <vector>
import shardmesh.cuda;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr device gpu{device_type::cuda, 0};

// The views of one batch, each in its own slot, and the initial bytes of the destinations.
struct work {
  batch_builder items;
  std::vector<random_views::owned_view> to, from;

  template <class Add>
  void add(random_views::owned_view a, random_views::owned_view b, const Add& append) {
    const auto slot = static_cast<std::uint32_t>(to.size());
    to.push_back(std::move(a));
    from.push_back(std::move(b));
    const auto& [target, source] = std::pair(std::cref(to.back()), std::cref(from.back()));
    const auto added = append(items, place(slot, target.get().memory.data(), target.get().view),
                              place(slot, source.get().memory.data(), source.get().view));
    REQUIRE(added);
  }
};

// The result of the host's backend.
std::vector<std::vector<std::byte>> done_here(const work& w) {
  std::vector<std::vector<std::byte>> made;
  std::vector<std::byte*> to;
  std::vector<const std::byte*> from;
  for (const auto& one : w.to) made.push_back(one.memory);
  for (auto& one : made) to.push_back(one.data());
  for (const auto& one : w.from) from.push_back(one.memory.data());
  const auto batch = host_backend()->prepare(w.items.items(), {});
  REQUIRE(batch);
  REQUIRE(host_backend()->run(**batch, {to, from}, {}));
  return made;
}

// The result of a device, with all work on one stream.
std::vector<std::vector<std::byte>> done_there(const work& w, kernel_backend& backend, stream_ref stream) {
  std::vector<device_buffer> buffers;
  std::vector<std::byte*> to;
  std::vector<const std::byte*> from;
  const auto upload = [&](const std::vector<std::byte>& bytes) {
    auto made = backend.allocate(static_cast<std::int64_t>(bytes.size()), gpu, stream);
    REQUIRE(made);
    REQUIRE(backend.copy_across(made->data(), gpu, bytes.data(), {}, made->size_bytes(), stream));
    buffers.push_back(*std::move(made));
    return buffers.back().data();
  };
  for (const auto& one : w.to) to.push_back(upload(one.memory));
  for (const auto& one : w.from) from.push_back(upload(one.memory));
  const auto batch = backend.prepare(w.items.items(), gpu);
  REQUIRE(batch);
  CHECK((*batch)->items() == w.items.items().size());
  REQUIRE(backend.run(**batch, {to, from}, stream));
  std::vector<std::vector<std::byte>> made;
  for (std::size_t i = 0; i < to.size(); ++i) {
    made.emplace_back(w.to[i].memory.size());
    REQUIRE(backend.copy_across(made.back().data(), {}, to[i], gpu, buffers[i].size_bytes(), stream));
  }
  const auto all = backend.record(gpu, stream);
  REQUIRE(all);
  REQUIRE((*all)->wait());
  return made;
}

struct element {
  dtype type;
  std::size_t size;
};
element any_element(std::mt19937_64& random) {
  constexpr element all[] = {{dtype::float32, 4}, {dtype::bfloat16, 2}, {dtype::float64, 8}, {dtype::int32, 4},
                             {dtype::uint8, 1},   {dtype::int64, 8},    {dtype::float16, 2}};
  return all[random() % std::size(all)];
}

// Copies, conversions, and maxima of integers only: a NaN may become any NaN.
work integer_work(std::mt19937_64& random) {
  constexpr element all[] = {{dtype::int32, 4}, {dtype::uint8, 1}, {dtype::int64, 8}, {dtype::int16, 2}};
  work w;
  for (std::uint64_t i = 0, count = 1 + random() % 6; i < count; ++i) {
    const extents sizes = random_views::random_sizes(random);
    const element a = all[random() % std::size(all)], b = all[random() % std::size(all)];
    w.add(random_views::make(random, sizes, a.type, a.size, false),
          random_views::make(random, sizes, b.type, b.size, true),
          [&](batch_builder& items, const placed_view& to, const placed_view& from) {
            return random() % 3 == 0 ? items.accumulate(to, from, reduce_op::max) : items.copy(to, from);
          });
  }
  return w;
}

// Stands for the kernel of cuda_kernels/run_tiles.cu: the same bodies, with a loop for each block.
template <int Slots>
void loop_over_tiles(void* const* arguments, unsigned int, unsigned int) {
  const auto& phase = *static_cast<const kernel_bodies::tiled_phase*>(arguments[0]);
  const auto& slots = *static_cast<const kernel_bodies::slot_addresses<Slots>*>(arguments[1]);
  alignas(16) std::byte scratch[kernel_bodies::scratch_bytes];
  const kernel_bodies::emulated_team team(kernel_bodies::threads_per_tile, scratch);
  for (std::int64_t tile = 0; tile < phase.tiles(); ++tile) {
    const std::int64_t found = phase.item_of(tile);
    const kernel_bodies::tile_item& item = phase.items[found];
    std::byte* const to = slots.at[item.to_slot] + item.to_offset;
    const std::byte* const from =
        kernel_bodies::reads(item.op) ? slots.at[slots.sources + item.from_slot] + item.from_offset : to;
    kernel_bodies::run_tile(team, item, tile - (phase.first_tile[found] - phase.first_tile[0]), to, from);
  }
}
template <int Slots>
void define_kernel() {
  const std::size_t sizes[] = {sizeof(kernel_bodies::tiled_phase), sizeof(kernel_bodies::slot_addresses<Slots>)};
  double_define_kernel(cuda::kernel_program::kernel, sizes, std::size(sizes), &loop_over_tiles<Slots>);
}
const cuda_options by_nvrtc{.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "nvrtc", .nvrtc = SHARDMESH_NVRTC_DOUBLE};

}  // namespace

TEST_CASE("random batches on a stream do what the host's backend does") {
  for (const std::uint64_t seed : random_seed::seeds(40)) {
    INFO("SHARDMESH_SEED=" << seed);
    const on_double fresh(seed);
    const auto scope = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels_on_host = !tests_run_on_gpu()});
    const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
    REQUIRE((scope && runtime));
    const auto stream = cuda::stream::make(*runtime, gpu);
    REQUIRE(stream);
    std::mt19937_64 random(seed);
    work w;
    for (std::uint64_t i = 0, count = random() % 6; i < count; ++i) {
      const extents sizes = random_views::random_sizes(random);
      const element a = any_element(random), b = any_element(random);
      w.add(random_views::make(random, sizes, a.type, a.size, false),
            random_views::make(random, sizes, b.type, b.size, true),
            [&](batch_builder& items, const placed_view& to, const placed_view& from) {
              return random() % 3 == 0 ? items.accumulate(to, from, reduce_op::max) : items.copy(to, from);
            });
    }
    CHECK(done_there(w, scope->backend(), random() % 2 == 0 ? stream->ref() : stream_ref{}) == done_here(w));
  }
}

TEST_CASE("without kernels, copies that convert nothing are CUDA's") {
  for (const std::uint64_t seed : random_seed::seeds(40)) {
    INFO("SHARDMESH_SEED=" << seed);
    const on_double fresh(seed);
    const auto scope = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "none"});
    const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
    REQUIRE((scope && runtime));
    CHECK(scope->backend().name() == "cuda (copies only)");
    const auto stream = cuda::stream::make(*runtime, gpu);
    REQUIRE(stream);
    std::mt19937_64 random(seed);
    work w;
    for (std::uint64_t i = 0, count = random() % 6; i < count; ++i) {
      const extents sizes = random_views::random_sizes(random);
      const element a = any_element(random);
      w.add(random_views::make(random, sizes, a.type, a.size, false),
            random_views::make(random, sizes, a.type, a.size, true),
            [&](batch_builder& items, const placed_view& to, const placed_view& from) {
              return items.copy(to, from, static_cast<std::uint32_t>(random() % 2));
            });
    }
    CHECK(done_there(w, scope->backend(), stream->ref()) == done_here(w));
    CHECK(double_calls("cudaLaunchHostFunc") == 0);
  }
}

TEST_CASE("rows of a matrix are one call") {
  const on_double fresh;
  const auto scope = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "none"});
  REQUIRE(scope);
  auto wide = device_tensor::make(dtype::float32, {50, 40}, gpu);
  auto part = device_tensor::make(dtype::float32, {50, 8}, gpu);
  REQUIRE((wide && part));
  const auto columns = subview(view_of(*wide), box{{0, 16}, {50, 8}});
  const std::vector<float> values(400, 2.5F);
  const const_tensor_view given{reinterpret_cast<const std::byte*>(values.data()), dtype::float32, {}, {50, 8}, {8, 1}};
  REQUIRE(copy_between(view_of(*part), given));
  const auto before = double_calls("cudaMemcpyAsync");
  REQUIRE(copy_between(columns, view_of(std::as_const(*part))));
  CHECK(double_calls("cudaMemcpy2DAsync") == 1);
  CHECK(double_calls("cudaMemcpyAsync") == before);
}

TEST_CASE("without kernels, what is computed or converted is refused by name before anything moves") {
  const on_double fresh;
  const auto scope = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "none"});
  REQUIRE(scope);
  const auto refusal = [&](const batch_builder& items) {
    const auto batch = scope->backend().prepare(items.items(), gpu);
    REQUIRE(!batch);
    CHECK(batch.error().code == errc::unsupported);
    return to_string(batch.error());
  };
  const auto at = [](dtype type, extents strides) { return placed_view{0, 0, type, {100, 100, 100}, strides}; };
  batch_builder cast, sum, scattered;
  REQUIRE(cast.copy(at(dtype::bfloat16, {10'000, 100, 1}), at(dtype::float32, {10'000, 100, 1})));
  CHECK_THAT(refusal(cast), ContainsSubstring("cuda:0") && ContainsSubstring("copy of float32 to bfloat16") &&
                                ContainsSubstring("cuda_options::kernels"));
  REQUIRE(sum.accumulate(at(dtype::float32, {10'000, 100, 1}), at(dtype::float32, {10'000, 100, 1}), reduce_op::sum));
  CHECK_THAT(refusal(sum), ContainsSubstring("accumulate (sum) of float32"));
  REQUIRE(scattered.copy(at(dtype::int8, {100, 10'000, 1}), at(dtype::int8, {1, 100, 10'000})));
  CHECK(scope->backend().prepare(scattered.items(), gpu));  // 10,000 calls: slow, but correct
  batch_builder more;
  REQUIRE(
      more.copy({0, 0, dtype::int8, {1000, 100, 5}, {500, 5, 1}}, {0, 0, dtype::int8, {1000, 100, 5}, {1, 1000, 0}}));
  CHECK_THAT(refusal(more), ContainsSubstring("too many copies"));
}

TEST_CASE("a library of kernels that is named must be one") {
  const on_double fresh;
  const auto missing = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "/nowhere/libkernels.so"});
  REQUIRE(!missing);
  CHECK(missing.error().code == errc::unsupported);
  CHECK(missing.error().found == "/nowhere/libkernels.so");
  const auto other = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = "libc.so.6"});
  REQUIRE(!other);
  CHECK_THAT(to_string(other.error()), ContainsSubstring("libc.so.6 has no function shardmesh_cuda_kernels_version"));
}

TEST_CASE("a library of kernels of another version is refused with both versions and the remedy") {
  const on_double fresh;
  const auto scope =
      cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = SHARDMESH_KERNELS_DOUBLE_OF_OTHER_VERSION});
  REQUIRE(!scope);
  CHECK(scope.error().code == errc::unsupported);
  CHECK(scope.error().expected == "version 1 (shardmesh " SHARDMESH_VERSION ")");
  CHECK(scope.error().found == "version 7 (the double)");
  CHECK_THAT(to_string(scope.error()), ContainsSubstring(SHARDMESH_KERNELS_DOUBLE_OF_OTHER_VERSION) &&
                                           ContainsSubstring("install the component cuda_kernels"));
}

TEST_CASE("a library of kernels without code for the GPU is refused when a batch is prepared", "[double]") {
  const on_double fresh;
  const auto scope =
      cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = SHARDMESH_KERNELS_DOUBLE_FOR_OTHER_GPUS});
  REQUIRE(scope);
  batch_builder copy;
  REQUIRE(copy.copy({0, 0, dtype::float32, {9}, {1}}, {0, 0, dtype::float32, {9}, {1}}));
  const auto refused = scope->backend().prepare(copy.items(), gpu);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().expected == "code for architecture 90");
  CHECK(refused.error().found == "the double, architectures 100 120");
  CHECK_THAT(to_string(refused.error()),
             ContainsSubstring("cuda:0") && ContainsSubstring(SHARDMESH_KERNELS_DOUBLE_FOR_OTHER_GPUS) &&
                 ContainsSubstring("SHARDMESH_CUDA_KERNELS=nvrtc") && ContainsSubstring("CMAKE_CUDA_ARCHITECTURES=90"));
}

TEST_CASE("a library runs on GPUs of its architectures' major versions, and on newer ones by its PTX") {
  cuda::kernel_library library;
  CHECK(library.runs_on(50));  // it names no architecture
  library.architectures = {75, 80, 90};
  for (const int runs : {75, 80, 86, 89, 90, 100, 120}) CHECK(library.runs_on(runs));
  for (const int lacks : {52, 70, 72}) CHECK(!library.runs_on(lacks));
  library.architectures = {86, 100};
  CHECK(!library.runs_on(80));
  CHECK(!library.runs_on(90));
}

TEST_CASE("kernels of a library run batches on their stream, and what it has none for is refused by name", "[double]") {
  for (const std::uint64_t seed : random_seed::seeds(20)) {
    INFO("SHARDMESH_SEED=" << seed);
    const on_double fresh(seed);
    const auto scope = cuda_scope::open({.cudart = SHARDMESH_GPU_DOUBLE, .kernels = SHARDMESH_KERNELS_DOUBLE});
    const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
    REQUIRE((scope && runtime));
    CHECK(scope->backend().name() == "cuda");
    const auto stream = cuda::stream::make(*runtime, gpu);
    REQUIRE(stream);
    std::mt19937_64 random(seed);
    work w;
    for (std::uint64_t i = 0, count = random() % 6; i < count; ++i) {
      const extents sizes = random_views::random_sizes(random);
      const element a = random() % 2 == 0 ? element{dtype::float32, 4} : element{dtype::int64, 8};
      w.add(random_views::make(random, sizes, a.type, a.size, false),
            random_views::make(random, sizes, a.type, a.size, true),
            [&](batch_builder& items, const placed_view& to, const placed_view& from) {
              return items.copy(to, from, static_cast<std::uint32_t>(random() % 2));
            });
    }
    CHECK(done_there(w, scope->backend(), random() % 2 == 0 ? stream->ref() : stream_ref{}) == done_here(w));
    CHECK(double_calls("cudaMemcpy2DAsync") == 0);
    batch_builder cast;
    REQUIRE(cast.copy({0, 0, dtype::float32, {9}, {1}}, {0, 0, dtype::float32, {9}, {1}}));
    REQUIRE(cast.copy({0, 0, dtype::bfloat16, {9}, {1}}, {0, 0, dtype::float32, {9}, {1}}));
    const auto refused = scope->backend().prepare(cast.items(), gpu);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::unsupported);
    CHECK_THAT(to_string(refused.error()),
               ContainsSubstring("has no kernel for copy of float32 to bfloat16 in 1 loop on cuda:0"));
  }
}

TEST_CASE("kernels that NVRTC compiled run batches on their stream as the host's backend does", "[double]") {
  const own_cache cache;
  for (const std::uint64_t seed : random_seed::seeds(40)) {
    INFO("SHARDMESH_SEED=" << seed);
    const on_double fresh(seed);
    define_kernel<kernel_bodies::few_slots>();
    const auto scope = cuda_scope::open(by_nvrtc);
    const auto runtime = cuda::runtime::load(SHARDMESH_GPU_DOUBLE);
    REQUIRE((scope && runtime));
    CHECK(scope->backend().name() == "cuda (NVRTC)");
    const auto stream = cuda::stream::make(*runtime, gpu);
    REQUIRE(stream);
    std::mt19937_64 random(seed);
    const work w = integer_work(random);
    CHECK(done_there(w, scope->backend(), random() % 2 == 0 ? stream->ref() : stream_ref{}) == done_here(w));
  }
}

TEST_CASE("a batch with many slots is launched with the larger arguments", "[double]") {
  const own_cache cache;
  const on_double fresh(3);
  define_kernel<kernel_bodies::most_slots>();
  const auto scope = cuda_scope::open(by_nvrtc);
  REQUIRE(scope);
  std::mt19937_64 random(3);
  work w;
  for (int i = 0; i < kernel_bodies::few_slots; ++i)
    w.add(random_views::make(random, {3, 2}, dtype::int32, 4, false),
          random_views::make(random, {3, 2}, dtype::uint8, 1, false),
          [](batch_builder& items, const placed_view& to, const placed_view& from) { return items.copy(to, from); });
  CHECK(done_there(w, scope->backend(), {}) == done_here(w));
  CHECK(double_calls("cudaLaunchKernel") == 1);
}

TEST_CASE("a real GPU runs kernels that the real NVRTC compiled as the host's backend does") {
  const own_cache cache;
  const auto runtime = cuda::runtime::load(SHARDMESH_REAL_CUDART);
  if (!runtime) SKIP("libcudart was not found: " << to_string(runtime.error()));
  if (const auto count = runtime->device_count(); !count || *count == 0)
    SKIP("this machine has no GPU: " << (count ? std::string() : to_string(count.error())));
  const auto scope =
      cuda_scope::open({.cudart = SHARDMESH_REAL_CUDART, .kernels = "nvrtc", .nvrtc = SHARDMESH_REAL_NVRTC});
  if (!scope) SKIP("NVRTC cannot be used: " << to_string(scope.error()));
  const auto stream = cuda::stream::make(*runtime, gpu);
  REQUIRE(stream);
  for (const std::uint64_t seed : random_seed::seeds(40)) {
    INFO("SHARDMESH_SEED=" << seed);
    std::mt19937_64 random(seed);
    const work w = integer_work(random);
    CHECK(done_there(w, scope->backend(), random() % 2 == 0 ? stream->ref() : stream_ref{}) == done_here(w));
  }
}
