// SPDX-License-Identifier: Apache-2.0
// Compares loads through the C interface with the library's: any box, strides, and element type. Also tests refusals.
#include <algorithm>
#include <c_answers.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <fstream>
#include <golden.hpp>
#include <iterator>
#include <limits>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

import shardmesh;

using namespace c_answers;

namespace {

std::string golden_path(const char* name) {
  return (golden::folder() / name / "checkpoint").string();
}

// Memory of the given sizes whose last dimension has the largest stride.
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
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937 dice(static_cast<std::uint32_t>(seed));
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

TEST_CASE("memory of other sizes is filled where that is allowed, with zeros beyond what is stored") {
  const c_answers::scratch_folder scratch;
  const std::vector<std::int32_t> stored{1, 2, 3, 4, 5, 6};
  c::save(scratch / "w", {{"w", c::view(stored.data(), {3, 2})}});
  const c::checkpoint from = c::checkpoint::open(scratch / "w");
  for (const bool in_background : {false, true}) {
    std::vector<std::int32_t> tall(8, -1), low(2, -1), beyond(4, -1), flat(6, -1);
    const std::vector<c::load_request> wanted{{"w", c::view(tall.data(), {4, 2}), {}},
                                              {"w", c::view(low.data(), {1, 2}), {}},
                                              {"w", c::view(beyond.data(), {2, 2}), {2, 1}}};
    const auto load = [&](const std::vector<c::load_request>& requests, bool allow) {
      if (!in_background) return static_cast<void>(from.load(requests, {.allow_shape_mismatch = allow}));
      c::loading(from, requests, {.allow_shape_mismatch = allow}).wait();
    };
    for (const c::load_request& one : wanted)
      CHECK(problems_of([&] { load({one}, false); }).front().status == SHARDMESH_SHAPE_MISMATCH);
    load(wanted, true);
    CHECK(tall == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 0, 0});
    CHECK(low == std::vector<std::int32_t>{1, 2});
    CHECK(beyond == std::vector<std::int32_t>{6, 0, 0, 0});
    const auto refused = problems_of([&] { load({{"w", c::view(flat.data(), {6}), {}}}, true); });
    CHECK(refused.front().status == SHARDMESH_SHAPE_MISMATCH);
    CHECK(refused.front().key == "w");
  }
}

TEST_CASE("a load that checks finds a byte that changed") {
  const c_answers::scratch_folder scratch;
  std::vector<float> values(1000, 3);
  c::save(scratch / "w", {{"w", c::view(std::as_const(values).data(), {1000})}});
  {
    std::fstream file(scratch.path / "w" / "__0_0.distcp", std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(values.data()), 400));
    REQUIRE(at != std::string::npos);
    file.clear();
    file.seekp(static_cast<std::streamoff>(at + 100));
    file.put('\1');
  }
  const c::checkpoint from = c::checkpoint::open(scratch / "w");
  from.load({{"w", c::view(values.data(), {1000}), {}}});
  const auto refused = problems_of([&] { from.load({{"w", c::view(values.data(), {1000}), {}}}, {.check = true}); });
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].status == SHARDMESH_CHECKSUM_MISMATCH);
  CHECK(refused[0].key == "w");
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

TEST_CASE("elements of 4 and 6 bits are saved and loaded, whatever their number") {
  const c_answers::scratch_folder scratch;
  std::vector<std::byte> stored;
  for (int i = 1; i <= 6; ++i) stored.push_back(static_cast<std::byte>(i));
  for (const shardmesh_dtype type : {SHARDMESH_DTYPE_FLOAT6_E2M3, SHARDMESH_DTYPE_FLOAT6_E3M2}) {
    c::save_options how;
    how.format = SHARDMESH_FORMAT_SAFETENSORS;
    how.overwrite = true;
    c::save(scratch / "w.safetensors", {{"w", c::const_tensor{stored.data(), type, {2, 4}, {}}}}, how);
    const c::checkpoint from = c::checkpoint::open(scratch / "w.safetensors");
    CHECK(from.tensor_at(0).dtype == type);
    std::vector<std::byte> memory(6);
    from.load({{"w", c::tensor{memory.data(), type, {2, 4}, {}}, {}}});
    CHECK(memory == stored);
  }
  // Two of 4 bits are one element of the type that is read.
  c::save_options how;
  how.format = SHARDMESH_FORMAT_SAFETENSORS;
  c::save(scratch / "half.safetensors",
          {{"w", c::const_tensor{stored.data(), SHARDMESH_DTYPE_FLOAT4_E2M1FN, {3, 4}, {}}}}, how);
  const c::checkpoint from = c::checkpoint::open(scratch / "half.safetensors");
  std::vector<std::byte> memory(6);
  from.load({{"w", c::tensor{memory.data(), SHARDMESH_DTYPE_FLOAT4_E2M1FN_X2, {3, 2}, {}}, {}}});
  CHECK(memory == stored);
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

TEST_CASE("requests of one load that fill the same memory are refused, unless their values are equal") {
  const scratch_folder scratch;
  const std::vector<float> a{0, 1, 2, 3, 4, 5}, b{1, 2, 3, 4, 5, 6};
  std::vector<c::save_tensor> tensors;
  tensors.emplace_back("a", c::view(a.data(), {2, 3}));
  tensors.emplace_back("b", c::view(b.data(), {2, 3}));
  tensors.emplace_back("same", c::view(a.data(), {2, 3}));
  c::save(scratch / "three", tensors);
  const c::checkpoint from = c::checkpoint::open(scratch / "three");
  std::vector<float> memory(12, -1.0F);
  const auto at = [&](std::ptrdiff_t offset) { return c::view(memory.data() + offset, {2, 3}); };
  const auto meeting = problems_of([&] { from.load(std::vector<c::load_request>{{"a", at(0)}, {"b", at(5)}}); });
  REQUIRE(meeting.size() == 1);
  CHECK(meeting[0].status == SHARDMESH_OVERLAP);
  CHECK(meeting[0].key == "b");
  CHECK(meeting[0].message == "fills a part of the memory that a fills");
  CHECK(memory == std::vector<float>(12, -1.0F));
  const auto differing = problems_of([&] { from.load(std::vector<c::load_request>{{"a", at(0)}, {"b", at(0)}}); });
  REQUIRE(differing.size() == 1);
  CHECK(differing[0].status == SHARDMESH_DISAGREEMENT);
  CHECK(differing[0].key == "b");
  memory.assign(12, -1.0F);
  from.load(std::vector<c::load_request>{{"a", at(0)}, {"same", at(0)}, {"b", at(6)}});
  CHECK(memory == std::vector<float>{0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6});
}
