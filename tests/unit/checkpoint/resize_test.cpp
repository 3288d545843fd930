// SPDX-License-Identifier: Apache-2.0
// Tests loads into other sizes than the stored ones, against a loop: elements keep their indices, and the rest is zero.
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <scratch_folder.hpp>
#include <string>
#include <vector>

import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

using namespace shardmesh;
namespace fs = std::filesystem;

namespace {

tensor_view view_of(std::vector<std::int32_t>& values, const extents& sizes) {
  return {reinterpret_cast<std::byte*>(values.data()), dtype::int32, {}, sizes, contiguous_strides(sizes)};
}

std::vector<std::int32_t> counted(const extents& sizes) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(box::whole(sizes).volume()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i) + 1;
  return values;
}

// The elements that a load of counted(stored) into sizes `wanted` must give, one by one.
std::vector<std::int32_t> expected(const extents& stored, const extents& wanted) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(box::whole(wanted).volume()));
  const extents from = contiguous_strides(stored), to = contiguous_strides(wanted);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t at = 1;
    bool is_held = true;
    for (std::size_t d = 0; d < wanted.rank(); ++d) {
      const std::int64_t index = static_cast<std::int64_t>(i) / to[d] % wanted[d];
      is_held &= index < stored[d];
      at += index * from[d];
    }
    values[i] = is_held ? static_cast<std::int32_t>(at) : 0;
  }
  return values;
}

// "w" in chunks of one row each, and "n" [2].
std::unique_ptr<checkpoint_reader> saved(const fs::path& at, const extents& shape, target_format format) {
  std::vector<std::int32_t> w = counted(shape), n{7, 8};
  std::vector<save_part> parts;
  const tensor_view all = view_of(w, shape);
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    box where = box::whole(shape);
    where.offsets[0] = row;
    where.sizes[0] = 1;
    tensor_view part = all;
    part.data += row * all.strides[0] * 4;
    part.sizes = where.sizes;
    parts.push_back({where, part, 0});
  }
  if (parts.empty()) parts.push_back({box::whole(shape), all, 0});
  const save_tensor tensors[] = {{"w", {"w"}, shape, parts},
                                 {"n", {"n"}, {2}, {{box::whole({2}), view_of(n, {2}), 0}}}};
  REQUIRE(save(at, tensors, format));
  return open_checkpoint(at).value();
}

}  // namespace

TEST_CASE("a load that allows other shapes keeps what is stored at its indices and fills the rest with zeros") {
  const scratch_folder folder;
  const std::vector<extents> stored{{3, 4}, {1, 5}, {0, 3}, {2, 3, 2}};
  const std::vector<std::vector<extents>> wanted{{{3, 4}, {5, 4}, {2, 4}, {3, 6}, {5, 2}, {1, 9}, {0, 4}},
                                                 {{2, 7}, {1, 5}, {3, 1}},
                                                 {{2, 3}, {0, 5}},
                                                 {{3, 2, 5}, {1, 7, 2}, {2, 3, 1}}};
  for (const target_format format : {target_format::dcp, target_format::safetensors})
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const fs::path at = folder.path / (std::to_string(i) + (format == target_format::dcp ? "" : ".safetensors"));
      const auto reader = saved(at, stored[i], format);
      for (const extents& shape : wanted[i]) {
        INFO(to_string(stored[i]) << " as " << to_string(shape));
        std::vector<std::int32_t> into(static_cast<std::size_t>(box::whole(shape).volume()), -1);
        const auto loaded = load_into(*reader, "w", view_of(into, shape), {.allow_shape_mismatch = true});
        REQUIRE(loaded.has_value());
        CHECK(into == expected(stored[i], shape));
        const std::vector<resized_tensor> said{{"w", stored[i], shape}};
        CHECK(loaded->resized == (shape == stored[i] ? std::vector<resized_tensor>{} : said));
        CHECK(loaded->loaded == std::vector<std::string>{"w"});
        if (shape != stored[i]) {
          const auto refused = load_into(*reader, "w", view_of(into, shape));
          REQUIRE(!refused);
          CHECK(refused.error().code == errc::shape_mismatch);
          CHECK(refused.error().expected == to_string(stored[i]));
          CHECK(refused.error().found == to_string(shape));
        }
      }
    }
}

TEST_CASE("boxes beyond a tensor's end are loaded as zeros, where that is allowed, and reported once") {
  const scratch_folder folder;
  const auto reader = saved(folder.path / "a", {3, 2}, target_format::dcp);
  std::vector<std::int32_t> low(4, -1), high(4, -1), beyond(2, -1), n(2, -1);
  const load_request requests[] = {{"w", {{0, 0}, {2, 2}}, view_of(low, {2, 2})},
                                   {"w", {{2, 0}, {2, 2}}, view_of(high, {2, 2})},
                                   {"w", {{4, 0}, {1, 2}}, view_of(beyond, {1, 2})},
                                   {"n", {{0}, {2}}, view_of(n, {2})}};
  const auto refused = load(*reader, requests);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::shape_mismatch);
  const auto loaded = load(*reader, requests, {.allow_shape_mismatch = true});
  REQUIRE(loaded.has_value());
  CHECK(low == std::vector<std::int32_t>{1, 2, 3, 4});
  CHECK(high == std::vector<std::int32_t>{5, 6, 0, 0});
  CHECK(beyond == std::vector<std::int32_t>{0, 0});
  CHECK(n == std::vector<std::int32_t>{7, 8});
  CHECK(loaded->resized == std::vector<resized_tensor>{{"w", {3, 2}, {5, 2}}});
}

TEST_CASE("another number of dimensions and unknown keys are refused, also where other shapes are allowed") {
  const scratch_folder folder;
  const auto reader = saved(folder.path / "a", {3, 2}, target_format::dcp);
  std::vector<std::int32_t> into(6);
  const auto flat = load_into(*reader, "w", view_of(into, {6}), {.allow_shape_mismatch = true});
  REQUIRE(!flat);
  CHECK(flat.error().code == errc::shape_mismatch);
  const std::vector<resized_tensor> flattened{{"w", {3, 2}, {6}}}, unknown{{"v", {3, 2}, {4, 2}}},
      huge{{"w", {3, 2}, {std::int64_t{1} << 40, std::int64_t{1} << 40}}};
  CHECK(resize_tensors(*reader, flattened).error().code == errc::shape_mismatch);
  CHECK(resize_tensors(*reader, unknown).error().code == errc::missing_key);
  CHECK(resize_tensors(*reader, huge).error().code == errc::overflow);
  CHECK(to_string(resized_tensor{"w", {6, 5, 2}, {8, 4, 2}}) ==
        "w: [6, 5, 2] becomes [8, 4, 2]: dimension 0 is filled with zeros from 6 on, dimension 1 is cut at 4");
}
