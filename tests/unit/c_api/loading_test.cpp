// SPDX-License-Identifier: Apache-2.0
// Loading through the C interface: any box, strides and element type, as the library loads them; its refusals.
#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <golden.hpp>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

import shardmesh;

using namespace c_answers;

namespace {

std::string golden_path(const char* name) {
  return (golden::folder() / name / "checkpoint").string();
}

// Memory of these sizes, in which the last dimension moves slowest.
struct reversed_memory {
  std::vector<std::byte> bytes;
  std::vector<std::int64_t> strides;
  reversed_memory(const std::vector<std::int64_t>& sizes, std::int64_t item) {
    std::int64_t step = 1;
    for (const std::int64_t size : sizes) {
      strides.push_back(step);
      step *= std::max<std::int64_t>(size, 1);
    }
    bytes.resize(static_cast<std::size_t>(step * item), std::byte{0x5a});
  }
};

std::int64_t item_of(shardmesh_dtype type) {
  return shardmesh_dtype_bits(type) / 8;
}

}  // namespace

TEST_CASE("random boxes into reversed strides hold what the library loads") {
  std::mt19937 dice(7);
  for (const char* name : {"fsdp2_tp_2x2", "dtensor_3d_2x2x2", "dtypes", "options_zstd"}) {
    const std::string path = golden_path(name);
    const auto reader = shardmesh::open_checkpoint(path).value();
    const c::checkpoint from = c::checkpoint::open(path);
    for (const c::tensor_entry& entry : from.tensors()) {
      if (!entry.opaque_type.empty() || item_of(entry.dtype) == 0) continue;
      CAPTURE(name, entry.key);
      std::vector<std::int64_t> offsets, sizes;
      for (const std::int64_t size : entry.shape) {
        offsets.push_back(std::uniform_int_distribution<std::int64_t>(0, size)(dice));
        sizes.push_back(std::uniform_int_distribution<std::int64_t>(0, size - offsets.back())(dice));
      }
      reversed_memory memory(sizes, item_of(entry.dtype)), expected = memory;
      from.load({{entry.key, {memory.bytes.data(), entry.dtype, sizes, memory.strides}, offsets}});
      const shardmesh::tensor_view to{expected.bytes.data(),
                                      static_cast<shardmesh::dtype>(entry.dtype),
                                      {},
                                      shardmesh::extents(std::span<const std::int64_t>(sizes)),
                                      shardmesh::extents(std::span<const std::int64_t>(expected.strides))};
      const shardmesh::box where{shardmesh::extents(std::span<const std::int64_t>(offsets)), to.sizes};
      shardmesh::load_into(*reader, entry.key, where, to).value();
      CHECK(memory.bytes == expected.bytes);
    }
  }
}

TEST_CASE("a tensor is loaded as another element type, and narrowed only where that is allowed") {
  const c_answers::scratch_folder scratch;
  const std::vector<double> stored{1.5, -2.25, 1e300};
  c::save(scratch / "w", {{"w", c::view(stored.data(), {3})}});
  const c::checkpoint from = c::checkpoint::open(scratch / "w");
  CHECK(from.load<double>("w") == stored);
  std::vector<float> narrow(3);
  const auto refused = problems_of([&] { from.load({{"w", c::view(narrow.data(), {3}), {}}}); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_NARROWING);
  CHECK(refused[0].key == "w");
  c::load_options allowed;
  allowed.allow_narrowing = true;
  CHECK(from.load({{"w", c::view(narrow.data(), {3}), {}}}, allowed) == 12);
  CHECK(narrow == std::vector<float>{1.5F, -2.25F, std::numeric_limits<float>::infinity()});
}

TEST_CASE("what loading refuses names the key and the box, and writes nothing") {
  const c_answers::scratch_folder scratch;
  const std::vector<float> stored{0, 1, 2, 3, 4, 5};
  c::save(scratch / "w", {{"w", c::view(stored.data(), {2, 3})}});
  const c::checkpoint from = c::checkpoint::open(scratch / "w");
  std::vector<float> memory(6, -1.0F);

  const auto corner = problems_of([&] { from.load({{"w", c::view(memory.data(), {2, 2}), {}}}); });
  REQUIRE(corner.size() == 1);
  CHECK(std::string(corner[0].what()) ==
        "w: memory for the whole tensor has another shape: expected [2, 3], found [2, 2]");
  const auto outside = problems_of([&] { from.load({{"w", c::view(memory.data(), {2, 3}), {1, 0}}}); });
  REQUIRE(outside.size() == 1);
  CHECK(outside[0].status == SHARDMESH_SHAPE_MISMATCH);
  REQUIRE(outside[0].boxes.size() == 1);
  CHECK(outside[0].boxes[0].offsets[0] == 1);
  CHECK(outside[0].boxes[0].sizes[1] == 3);
  const auto missing = problems_of([&] { from.load({{"v", c::view(memory.data(), {2, 3}), {}}}); });
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].status == SHARDMESH_MISSING_KEY);
  CHECK(memory == std::vector<float>(6, -1.0F));
}

TEST_CASE("a key with a zero byte is saved, listed and loaded") {
  const c_answers::scratch_folder scratch;
  const std::string key("a\0b", 3);
  const std::vector<std::int32_t> stored{7, -8};
  c::save(scratch / "w", {{key, c::view(stored.data(), {2})}});
  const c::checkpoint from = c::checkpoint::open(scratch / "w");
  CHECK(from.tensor_at(0).key == key);
  CHECK(from.load<std::int32_t>(key) == stored);
}

TEST_CASE("threads load from one checkpoint at once") {
  const std::string path = golden_path("fsdp2_tp_2x2");
  const c::checkpoint from = c::checkpoint::open(path);
  std::string key;
  for (const c::tensor_entry& entry : from.tensors())
    if (entry.dtype == SHARDMESH_DTYPE_FLOAT32 && entry.numel() > 4) key = entry.key;
  const std::vector<float> expected = c::checkpoint::open(path).load<float>(key);
  std::vector<std::vector<float>> loaded(4);
  std::vector<std::thread> threads;
  for (auto& mine : loaded)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) mine = from.load<float>(key);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& mine : loaded) CHECK(mine == expected);
}
