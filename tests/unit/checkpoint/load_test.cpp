// SPDX-License-Identifier: Apache-2.0
// Tests what `load` refuses before it reads: casts that lose values, device memory, and a part where the whole is
// expected. Also tests how it reports the casts that it made.
#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <scratch_folder.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

template <class V>
tensor_view view_of(std::vector<V>& values, dtype type, const extents& sizes) {
  return {reinterpret_cast<std::byte*>(values.data()), type, {}, sizes, contiguous_strides(sizes)};
}

// "w", float32 [4, 3], and "n", int32 [2], in every format.
struct saved {
  scratch_folder scratch;
  std::vector<float> w{0.5F, 1.5F, 2.5F, 3.5F, 4.5F, 5.5F, 6.5F, 7.5F, 8.5F, 9.5F, 10.5F, 11.5F};
  std::vector<std::int32_t> n{7, -8};

  std::unique_ptr<checkpoint_reader> open(target_format format) {
    const fs::path path = scratch.path / (format == target_format::safetensors ? "one.safetensors" : "folder");
    const save_tensor tensors[] = {{"w", {"w"}, {4, 3}, {{box::whole({4, 3}), view_of(w, dtype::float32, {4, 3}), 0}}},
                                   {"n", {"n"}, {2}, {{box::whole({2}), view_of(n, dtype::int32, {2}), 0}}}};
    REQUIRE(save(path, tensors, format, {.overwrite = true}));
    return open_checkpoint(path).value();
  }
};

}  // namespace

TEST_CASE("a load that would lose values is refused with key, box and both dtypes, and nothing is written") {
  saved s;
  for (const auto format : {target_format::dcp, target_format::safetensors}) {
    const auto reader = s.open(format);
    std::vector<std::int32_t> into(12, -1);
    const box top{{0, 0}, {2, 3}};
    const load_request request{"w", top, view_of(into, dtype::int32, {2, 3})};
    const auto refused = load(*reader, {&request, 1});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::narrowing);
    CHECK(refused.error().key == "w");
    CHECK(refused.error().boxes == std::vector<box>{top});
    CHECK(refused.error().message == "casting float32 to int32 loses values");
    CHECK(into == std::vector<std::int32_t>(12, -1));
    host_tensor whole = host_tensor::make(dtype::int32, {4, 3}).value();
    const auto also = load_into(*reader, "w", whole);
    REQUIRE_FALSE(also);
    CHECK(also.error().code == errc::narrowing);
    // With permission, the cast is made and reported.
    const auto done = load(*reader, {&request, 1}, {.allow_narrowing = true});
    REQUIRE(done);
    CHECK(done->casts == std::vector<loaded_cast>{{"w", dtype::float32, dtype::int32}});
    CHECK(std::vector<std::int32_t>(into.begin(), into.begin() + 6) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  }
}

TEST_CASE("casts that keep all values need no word, and are listed once per key and dtype") {
  saved s;
  const auto reader = s.open(target_format::dcp);
  std::vector<double> first(6), second(6);
  std::vector<std::int32_t> n(2);
  std::vector<std::int64_t> wide(2);
  const load_request requests[] = {{"n", box::whole({2}), view_of(n, dtype::int32, {2})},
                                   {"w", {{0, 0}, {2, 3}}, view_of(first, dtype::float64, {2, 3})},
                                   {"w", {{2, 0}, {2, 3}}, view_of(second, dtype::float64, {2, 3})},
                                   {"n", box::whole({2}), view_of(wide, dtype::int64, {2})}};
  const auto done = load(*reader, requests);
  REQUIRE(done);
  CHECK(done->casts ==
        std::vector<loaded_cast>{{"w", dtype::float32, dtype::float64}, {"n", dtype::int32, dtype::int64}});
  CHECK(second == std::vector<double>{6.5, 7.5, 8.5, 9.5, 10.5, 11.5});
  CHECK(wide == std::vector<std::int64_t>{7, -8});
}

TEST_CASE("a key that is not there is answered with the one that is near, an object is not loaded as a tensor") {
  saved s;
  for (const auto format : {target_format::dcp, target_format::safetensors}) {
    const auto reader = s.open(format);
    for (const error& why : {load_tensor(*reader, "model.w").error(), load_tensor(*reader, "model.w", box{}).error()}) {
      CHECK(why.code == errc::missing_key);
      CHECK(why.key == "model.w");
      CHECK(why.file == reader->path().string());
      CHECK(why.message == "the checkpoint has no such tensor");
      CHECK(why.hint == "did you mean w?");
    }
    host_tensor to = host_tensor::make(dtype::float32, {4, 3}).value();
    CHECK(load_into(*reader, "v", to).error().hint.empty());
  }
  const auto golden = open_checkpoint(SHARDMESH_TEST_DATA "/golden/single_rank/checkpoint").value();
  REQUIRE_FALSE(golden->contents().objects.empty());
  const error why = load_tensor(*golden, golden->contents().objects[0].key).error();
  CHECK(why.code == errc::dtype_mismatch);
  CHECK(why.message == "a tensor is requested, but the entry is of the other kind");
}

TEST_CASE("a box is loaded into a tensor of its sizes, and other sizes are named beside it") {
  saved s;
  const auto reader = s.open(target_format::dcp);
  const box middle{{1, 1}, {2, 2}};
  host_tensor to = host_tensor::make(dtype::float32, {2, 2}).value();
  const auto done = load_into(*reader, "w", middle, to);
  REQUIRE(done);
  CHECK(done->loaded == std::vector<std::string>{"w"});
  CHECK(done->bytes_read == 16);
  const auto values = to.values<float>();
  CHECK(std::vector<float>(values.begin(), values.end()) == std::vector<float>{4.5F, 5.5F, 7.5F, 8.5F});
  host_tensor other = host_tensor::make(dtype::float32, {2, 3}).value();
  error why = load_into(*reader, "w", middle, other).error();
  CHECK(why.code == errc::shape_mismatch);
  CHECK(why.key == "w");
  CHECK(why.boxes == std::vector<box>{middle});
  CHECK(why.expected == "[2, 2]");
  CHECK(why.found == "[2, 3]");
  why = load_into(*reader, "w", box{{3, 0}, {2, 3}}, other).error();
  CHECK(why.message == "the requested box does not fit the stored shape");
  CHECK(why.expected == "[4, 3]");
}

TEST_CASE("a tensor of another shape is not filled with a part of the stored one") {
  saved s;
  const auto reader = s.open(target_format::safetensors);
  host_tensor part = host_tensor::make(dtype::float32, {2, 3}).value();
  const auto refused = load_into(*reader, "w", part);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::shape_mismatch);
  CHECK(refused.error().key == "w");
  CHECK(refused.error().expected == "[4, 3]");
  CHECK(refused.error().found == "[2, 3]");
}

TEST_CASE("memory of a device is neither loaded into nor saved from, naming key, box and device") {
  saved s;
  const auto reader = s.open(target_format::dcp);
  std::vector<float> into(12, -1.0F);
  tensor_view far = view_of(into, dtype::float32, {4, 3});
  far.where = {device_type::cuda, 1};
  const load_request request{"w", box::whole({4, 3}), far};
  const auto refused = load(*reader, {&request, 1});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unsupported);
  CHECK(refused.error().key == "w");
  CHECK(refused.error().found == "cuda:1");
  CHECK(refused.error().boxes == std::vector<box>{box::whole({4, 3})});
  chunk_source source(*reader);
  const auto& entry = reader->contents().tensors[0];
  CHECK(source.read({0, static_cast<std::int32_t>(entry.first_chunk)}, box::whole(entry.shape), far).error().code ==
        errc::unsupported);
  CHECK(into == std::vector<float>(12, -1.0F));
  const save_tensor tensor{"w", {"w"}, {4, 3}, {{box::whole({4, 3}), far, 0}}};
  const auto report = save(s.scratch.path / "far", {&tensor, 1});
  REQUIRE_FALSE(report);
  REQUIRE(report.error().problem_count() == 1);
  CHECK(report.error().code == errc::unsupported);
  CHECK(report.error().key == "w");
  CHECK(report.error().found == "cuda:1");
  CHECK_FALSE(fs::exists(s.scratch.path / "far"));
}

TEST_CASE("a deadline that has passed ends a load before it reads") {
  saved s;
  const auto reader = s.open(target_format::dcp);
  std::vector<float> into(12, -1.0F);
  const load_request request{"w", box::whole({4, 3}), view_of(into, dtype::float32, {4, 3})};
  const auto late = load(*reader, {&request, 1}, {.within = std::chrono::steady_clock::now()});
  REQUIRE_FALSE(late);
  CHECK(late.error().code == errc::deadline_exceeded);
  CHECK(late.error().key == "w");
  CHECK(into == std::vector<float>(12, -1.0F));
}
