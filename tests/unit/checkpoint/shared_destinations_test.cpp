// SPDX-License-Identifier: Apache-2.0
// Tests requests of one load that fill the same memory. They are refused where elements differ, and allowed for tied
// weights with equal values and for parts of one tensor.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <scratch_folder.hpp>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

tensor_view view(std::vector<float>& memory, std::int64_t offset, const extents& sizes, const extents& strides) {
  return {reinterpret_cast<std::byte*>(memory.data() + offset), dtype::float32, {}, sizes, strides};
}

constexpr extents shape{3, 4};
const box all = box::whole(shape);

// "a" is 0 to 11, "b" is 1 to 12, and "same" equals "a"; all are float32 [3, 4].
struct saved {
  scratch_folder scratch;
  std::unique_ptr<checkpoint_reader> reader;

  saved() {
    std::vector<float> a(12), b(12);
    std::iota(a.begin(), a.end(), 0.0F);
    std::iota(b.begin(), b.end(), 1.0F);
    const auto tensor = [&](const std::string& key, std::vector<float>& values) {
      return save_tensor{key, {key}, shape, {{all, view(values, 0, shape, {4, 1}), 0}}};
    };
    const save_tensor tensors[] = {tensor("a", a), tensor("b", b), tensor("same", a)};
    REQUIRE(save(scratch.path / "one.safetensors", tensors, target_format::safetensors));
    reader = open_checkpoint(scratch.path / "one.safetensors").value();
  }

  // The ways to load tensors: all at once, with checks, and in groups.
  std::vector<load_options> ways() const {
    return {{}, {.check = true}, {.on_arrival = [](const std::string&) {}}};
  }
};

// "FILE: key: message in boxes; hint", or "loaded".
std::string refusal(const result<load_report>& loaded, const saved& s) {
  if (loaded) return "loaded";
  std::string text = to_string(loaded.error());
  const std::string file = s.reader->path().string();
  if (text.starts_with(file)) text.replace(0, file.size(), "FILE");
  return text;
}

std::vector<float> numbers(std::int64_t first, std::int64_t count) {
  std::vector<float> made(static_cast<std::size_t>(count));
  std::iota(made.begin(), made.end(), static_cast<float>(first));
  return made;
}

}  // namespace

TEST_CASE("requests of two keys that share a part of their memory are refused before anything is read") {
  saved s;
  std::vector<float> memory(64, -1.0F);
  const load_request a{"a", all, view(memory, 0, shape, {4, 1})};
  const std::vector<tensor_view> others{view(memory, 1, shape, {4, 1}),  view(memory, 0, shape, {1, 3}),
                                        view(memory, 11, shape, {4, 1}), view(memory, 0, shape, {8, 2}),
                                        view(memory, 2, shape, {5, 1}),  view(memory, 8, shape, {-4, 1})};
  for (const tensor_view& other : others)
    for (const load_options& way : s.ways()) {
      const load_request requests[] = {a, {"b", all, other}};
      CHECK(
          refusal(load(*s.reader, requests, way), s) ==
          "FILE: b: fills a part of the memory that a fills in [0:3, 0:4) and [0:3, 0:4); give each request memory of "
          "its own");
    }
  tensor_view bytes = view(memory, 0, shape, {4, 1});
  bytes.type = dtype::int32;
  const load_request requests[] = {a, {"b", all, bytes}};
  CHECK(refusal(load(*s.reader, requests, {.allow_narrowing = true}), s).find("b: fills a part") != std::string::npos);
  CHECK(memory == std::vector<float>(64, -1.0F));
}

TEST_CASE("memory with one place for several elements is not filled") {
  saved s;
  std::vector<float> memory(12, -1.0F);
  for (const load_options& way : s.ways())
    for (const extents& strides : {extents{4, 0}, extents{0, 1}, extents{0, 0}}) {
      const load_request requests[] = {{"a", all, view(memory, 0, shape, strides)}};
      CHECK(refusal(load(*s.reader, requests, way), s) ==
            "FILE: a: the memory cannot be filled, because several elements share one address in [0:3, 0:4): expected "
            "no stride of 0, found strides " +
                to_string(strides) + "; fill a contiguous copy instead: expand shares memory between elements");
    }
  CHECK(memory == std::vector<float>(12, -1.0F));
  // Where a dimension has one element, its stride means nothing.
  const load_request row[] = {{"a", {{1, 0}, {1, 4}}, view(memory, 0, {1, 4}, {0, 1})}};
  CHECK(refusal(load(*s.reader, row), s) == "loaded");
  CHECK(std::vector<float>(memory.begin(), memory.begin() + 4) == numbers(4, 4));
}

TEST_CASE("memory in which steps along two dimensions meet is not filled") {
  saved s;
  std::vector<float> memory(24, -1.0F);
  for (const load_options& way : s.ways()) {
    for (const extents& strides : {extents{1, 1}, extents{2, 2}, extents{3, 2}, extents{2, -1}, extents{9, 6}}) {
      const load_request requests[] = {{"a", all, view(memory, 3, shape, strides)}};
      CHECK(refusal(load(*s.reader, requests, way), s) ==
            "FILE: a: the memory cannot be filled, because several elements share one address in [0:3, 0:4): expected "
            "a place for each element, found strides " +
                to_string(strides) +
                " of sizes [3, 4]; fill a contiguous copy instead: unfold shares memory between elements");
    }
    CHECK(memory == std::vector<float>(24, -1.0F));
  }
  // Neither dimension lies within the other, but each element has its own place.
  for (const load_options& way : s.ways()) {
    std::vector<float> apart(18, -1.0F);
    const load_request requests[] = {{"a", all, view(apart, 0, shape, {4, 3})}};
    CHECK(refusal(load(*s.reader, requests, way), s) == "loaded");
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t column = 0; column < 4; ++column)
        CHECK(apart[4 * row + 3 * column] == static_cast<float>(4 * row + column));
  }
}

TEST_CASE("interleaved memory is nobody else's") {
  saved s;
  for (const load_options& way : s.ways()) {
    std::vector<float> memory(24, -1.0F), expected;
    const load_request requests[] = {{"a", all, view(memory, 0, shape, {8, 2})},
                                     {"b", all, view(memory, 1, shape, {8, 2})}};
    REQUIRE(load(*s.reader, requests, way));
    for (const float a : numbers(0, 12)) expected.insert(expected.end(), {a, a + 1});
    CHECK(memory == expected);
  }
}

TEST_CASE("one memory under two keys is filled when their values are equal, and else an error that names both") {
  saved s;
  for (const load_options& way : s.ways()) {
    std::vector<float> memory(12, -1.0F);
    const tensor_view one = view(memory, 0, shape, {4, 1});
    const load_request tied[] = {{"a", all, one}, {"same", all, one}, {"a", all, one}, {"same", all, one}};
    const auto loaded = load(*s.reader, tied, way);
    REQUIRE(loaded);
    CHECK(memory == numbers(0, 12));
    CHECK(loaded->loaded == std::vector<std::string>{"a", "same"});
    const load_request others[] = {{"a", all, one}, {"b", all, one}};
    CHECK(refusal(load(*s.reader, others, way), s) ==
          "FILE: b: fills the memory that a fills, with other values in [0:3, 0:4); load tied tensors from a "
          "checkpoint in which they are equal, or into tensors of their own");
  }
}

TEST_CASE("a key of a tied weight that differs has not arrived") {
  saved s;
  std::vector<float> memory(12);
  const tensor_view one = view(memory, 0, shape, {4, 1});
  const load_request requests[] = {{"a", all, one}, {"b", all, one}};
  std::vector<std::string> arrived;
  CHECK_FALSE(load(*s.reader, requests, {.on_arrival = [&](const std::string& key) { arrived.push_back(key); }}));
  CHECK(arrived == std::vector<std::string>{});
}

TEST_CASE("two boxes of one key share memory only where they share elements") {
  saved s;
  const box top{{0, 0}, {2, 4}}, bottom{{1, 0}, {2, 4}};
  std::vector<float> memory(12, -1.0F);
  const load_request alike[] = {{"a", top, view(memory, 0, {2, 4}, {4, 1})},
                                {"a", bottom, view(memory, 4, {2, 4}, {4, 1})}};
  REQUIRE(load(*s.reader, alike));
  CHECK(memory == numbers(0, 12));

  memory.assign(12, -1.0F);
  const load_request shifted[] = {{"a", top, view(memory, 0, {2, 4}, {4, 1})},
                                  {"a", bottom, view(memory, 0, {2, 4}, {4, 1})}};
  const std::string refused =
      "FILE: a: two of its boxes fill the same memory with different elements in [0:2, 0:4) and [1:3, 0:4); give each "
      "request memory of its own";
  CHECK(refusal(load(*s.reader, shifted), s) == refused);
  // Rows that are too close: the strides fit, but elements of different columns share memory.
  const box left{{0, 0}, {3, 2}}, right{{0, 2}, {3, 2}};
  const load_request dense[] = {{"a", left, view(memory, 0, {3, 2}, {2, 1})},
                                {"a", right, view(memory, 2, {3, 2}, {2, 1})}};
  CHECK(
      refusal(load(*s.reader, dense), s) ==
      "FILE: a: two of its boxes fill the same memory with different elements in [0:3, 0:2) and [0:3, 2:4); give each "
      "request memory of its own");
  CHECK(memory == std::vector<float>(12, -1.0F));
}

TEST_CASE("buffers on the way are compared by the memory that they are copied to") {
  saved s;
  std::vector<float> first(12), second(12), memory(24);
  const auto request = [&](const std::string& key, std::vector<float>& to, std::int64_t offset) {
    return load_request{key, all, view(to, 0, shape, {4, 1}), view(memory, offset, shape, {4, 1})};
  };
  const load_request overlapping[] = {request("a", first, 0), request("b", second, 4)};
  CHECK(refusal(load(*s.reader, overlapping), s).find("b: fills a part of the memory that a fills") !=
        std::string::npos);
  const load_request apart[] = {request("a", first, 0), request("b", second, 12)};
  CHECK(load(*s.reader, apart));
  const load_request different[] = {request("a", first, 0), request("b", second, 0)};
  CHECK(refusal(load(*s.reader, different), s).find("b: fills the memory that a fills, with other values") !=
        std::string::npos);
  first.assign(12, -1.0F), second.assign(12, -1.0F);
  const load_request tied[] = {request("a", first, 0), request("same", second, 0)};
  REQUIRE(load(*s.reader, tied));
  CHECK(first == numbers(0, 12));
  CHECK(second == numbers(0, 12));
  // The caller copies from each buffer, so `load` fills both.
  first.assign(12, -1.0F), second.assign(12, -1.0F);
  const load_request repeated[] = {request("a", first, 0), request("a", second, 0)};
  REQUIRE(load(*s.reader, repeated));
  CHECK(first == numbers(0, 12));
  CHECK(second == numbers(0, 12));
}

TEST_CASE("a repeated request is read once") {
  saved s;
  std::vector<float> memory(12);
  const tensor_view one = view(memory, 0, shape, {4, 1});
  const load_request requests[] = {{"a", all, one}, {"a", all, one}};
  const auto loaded = load(*s.reader, requests);
  REQUIRE(loaded);
  CHECK(loaded->bytes_read == 48);
  CHECK(memory == numbers(0, 12));
}

TEST_CASE("ten thousand requests of one memory, and two thousand interleaved columns, are told apart") {
  std::vector<float> memory(20'000);
  std::vector<load_request> requests;
  for (int i = 0; i < 10'000; ++i)
    requests.push_back({i % 2 == 0 ? "a" : "b", all, view(memory, 0, shape, {4, 1}), std::nullopt});
  const auto one = detail::find_shared_destinations(requests);
  REQUIRE(one);
  CHECK(one->repeated.size() == 4999);
  CHECK(one->tied.size() == 5000);
  for (const detail::shared_destination& tie : one->tied) REQUIRE(tie.earlier == 0);
  requests.clear();
  // Columns of two rows, interleaved with each other.
  for (int i = 0; i < 2'000; ++i)
    requests.push_back({std::to_string(i), box::whole({2}), view(memory, i, {2}, {2'000}), std::nullopt});
  const auto apart = detail::find_shared_destinations(requests);
  REQUIRE(apart);
  CHECK(apart->repeated == std::vector<detail::shared_destination>{});
  CHECK(apart->tied == std::vector<detail::shared_destination>{});
}
