// SPDX-License-Identifier: Apache-2.0
// Writes tensors in memory as items and compares them with their elements' indices. Also tests which of them are copied
// on the way.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;

using namespace shardmesh;

namespace {

// Collects items by slot, and counts the bytes that come from known memory.
struct recording_sink {
  std::map<std::int32_t, std::vector<std::byte>> bytes;
  std::vector<std::span<const std::byte>> known;
  std::int64_t from_known = 0;
  std::size_t longest = 0;
  std::mutex lock;

  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> more) {
    const std::scoped_lock guard(lock);
    auto& all = bytes[item.slot];
    if (static_cast<std::int64_t>(all.size()) != first_byte) return fail(errc::io, "not front to back");
    all.insert(all.end(), more.begin(), more.end());
    longest = std::max(longest, more.size());
    for (const auto& memory : known)
      if (more.data() >= memory.data() && more.data() + more.size() <= memory.data() + memory.size())
        from_known += static_cast<std::int64_t>(more.size());
    return {};
  }
};

std::vector<std::int64_t> indices(const extents& shape, const box& where) {
  std::vector<std::int64_t> values;
  const extents strides = contiguous_strides(shape);
  const auto fill = [&](auto& self, std::size_t d, std::int64_t index) -> void {
    if (d == where.rank()) return values.push_back(index);
    for (std::int64_t i = 0; i < where.sizes[d]; ++i) self(self, d + 1, index + (where.offsets[d] + i) * strides[d]);
  };
  if (!where.is_empty()) fill(fill, 0, 0);
  return values;
}

// Cuts a shape by guillotine cuts; some pieces are empty.
std::vector<box> random_tiling(std::mt19937_64& random, const extents& shape, std::uint64_t count) {
  std::vector<box> pieces{box::whole(shape)};
  for (std::uint64_t i = 1; i < count && shape.rank() > 0; ++i) {
    box& left = pieces[random() % pieces.size()];
    const std::size_t d = random() % shape.rank();
    box right = left;
    const auto cut = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(left.sizes[d] + 1));
    left.sizes[d] = cut;
    right.offsets[d] += cut;
    right.sizes[d] -= cut;
    pieces.push_back(right);
  }
  return pieces;
}

// Boxes of an int64 tensor whose elements are their indices, each box in memory of its own.
struct held_boxes {
  std::list<std::vector<std::int64_t>> memory;
  view_source source;
  std::vector<fragment> fragments;

  // With `turned`, the dimensions have the reverse order in memory.
  void add(const extents& shape, const box& where, owner_id owner, bool turned = false) {
    extents strides = contiguous_strides(where.sizes);
    if (turned) {
      std::int64_t step = 1;
      for (std::size_t d = 0; d < where.rank(); ++d) {
        strides[d] = step;
        step *= std::max<std::int64_t>(where.sizes[d], 1);
      }
    }
    const std::vector<std::int64_t> values = indices(shape, where);
    std::vector<std::int64_t>& all = memory.emplace_back(values.size() + 1);
    const auto as_bytes = [](const void* data) { return static_cast<const std::byte*>(data); };
    const const_tensor_view from{
        as_bytes(values.data()), dtype::int64, {}, where.sizes, contiguous_strides(where.sizes)};
    const tensor_view to{reinterpret_cast<std::byte*>(all.data()), dtype::int64, {}, where.sizes, strides};
    REQUIRE(copy(to, from));
    fragments.push_back(
        {where, owner, static_cast<std::int32_t>(source.views.size()), extents::filled(shape.rank(), 0), 0});
    source.views.push_back(to);
  }
  distribution held(const extents& shape) const {
    return distribution::from_fragments(shape, fragments, owner_space::items).value();
  }
  std::vector<std::span<const std::byte>> known() const {
    std::vector<std::span<const std::byte>> all;
    for (const auto& one : memory) all.push_back(std::as_bytes(std::span(one)));
    return all;
  }
};

distribution items_of(const extents& shape, const std::vector<box>& boxes) {
  std::vector<fragment> fragments;
  for (std::size_t i = 0; i < boxes.size(); ++i)
    fragments.push_back(
        {boxes[i], static_cast<owner_id>(i % 3), static_cast<std::int32_t>(i), extents::filled(shape.rank(), 0), 0});
  return distribution::from_fragments(shape, fragments, owner_space::items).value();
}

}  // namespace

TEST_CASE("items written from memory hold their elements, however memory and items are cut") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::int64_t in_place = 0, copied = 0;
  for (int round = 0; round < 400; ++round) {
    extents shape;
    for (std::uint64_t d = random() % 4; d > 0; --d) shape.push_back(static_cast<std::int64_t>(random() % 9));
    held_boxes memory;
    for (const box& where : random_tiling(random, shape, 1 + random() % 5)) {
      memory.add(shape, where, static_cast<owner_id>(random() % 3), random() % 6 == 0);
      if (random() % 6 == 0) memory.add(shape, where, 3);  // a replica
    }
    const auto boxes = random_tiling(random, shape, 1 + random() % 5);
    const tensor_transfer transfer{memory.held(shape), items_of(shape, boxes), dtype::int64, dtype::int64};
    recording_sink sink;
    sink.known = memory.known();
    std::int64_t told = 0;
    std::mutex lock;
    const auto count = [&](std::int64_t bytes) {
      const std::scoped_lock guard(lock);
      told += bytes;
    };
    REQUIRE(write_items({&transfer, 1}, {}, memory.source, sink, {.threads = 2, .progress = count}));
    std::int64_t all = 0;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      const auto wanted = indices(shape, boxes[i]);
      const auto& got = sink.bytes[static_cast<std::int32_t>(i)];
      REQUIRE(got.size() == wanted.size() * 8);
      CHECK((got.empty() || std::memcmp(got.data(), wanted.data(), got.size()) == 0));
      all += static_cast<std::int64_t>(got.size());
    }
    CHECK(told == all);
    in_place += sink.from_known;
    copied += all - sink.from_known;
  }
  CHECK(in_place > 0);  // both ways occurred
  CHECK(copied > 0);
}

TEST_CASE("what lies in memory as it is written goes from there, at most 8 MiB at a time") {
  const extents shape{3000, 512};
  held_boxes memory;  // like one rank's part of a flat parameter: the end of a row, whole rows, the beginning of a row
  const std::vector<box> boxes{{{0, 500}, {1, 12}}, {{1, 0}, {2500, 512}}, {{2501, 0}, {1, 100}}};
  for (const box& where : boxes) memory.add(shape, where, 0);
  const tensor_transfer transfer{memory.held(shape), items_of(shape, boxes), dtype::int64, dtype::int64};
  recording_sink sink;
  sink.known = memory.known();
  REQUIRE(write_items({&transfer, 1}, {}, memory.source, sink, {.threads = 1}));
  CHECK(sink.from_known == (12 + 2500 * 512 + 100) * 8);
  CHECK(sink.longest == std::size_t{8} << 20);
}

TEST_CASE("a thousand small tensors of many sizes are all written from memory") {
  // Enough transfers to make a stable sort use its buffer.
  held_boxes memory;
  std::vector<tensor_transfer> transfers;
  std::vector<extents> shapes;
  for (std::int32_t i = 0; i < 1000; ++i) {
    const extents& shape = shapes.emplace_back(extents{1 + i * 7 % 5, 1 + i % 3});
    memory.add(shape, box::whole(shape), 0);
    const fragment held{box::whole(shape), 0, i, {0, 0}, 0};
    const distribution where = distribution::from_fragments(shape, {&held, 1}, owner_space::items).value();
    transfers.push_back({where, where, dtype::int64, dtype::int64});
  }
  recording_sink sink;
  REQUIRE(write_items(transfers, {}, memory.source, sink, {.threads = 2}));
  for (std::int32_t i = 0; i < 1000; ++i) {
    INFO("tensor " << i);
    const auto wanted = indices(shapes[static_cast<std::size_t>(i)], box::whole(shapes[static_cast<std::size_t>(i)]));
    REQUIRE(sink.bytes[i].size() == wanted.size() * 8);
    CHECK(std::memcmp(sink.bytes[i].data(), wanted.data(), wanted.size() * 8) == 0);
  }
}

TEST_CASE("an item of several shards is put together from their memory") {
  const extents shape{7, 5};
  held_boxes memory;
  for (const box& where : {box{{4, 0}, {3, 5}}, box{{0, 0}, {2, 5}}, box{{2, 0}, {2, 5}}}) memory.add(shape, where, 0);
  const tensor_transfer transfer{memory.held(shape), items_of(shape, {box::whole(shape)}), dtype::int64, dtype::int64};
  recording_sink sink;
  sink.known = memory.known();
  REQUIRE(write_items({&transfer, 1}, {}, memory.source, sink, {.threads = 1}));
  CHECK(sink.from_known == 7 * 5 * 8);
  const auto wanted = indices(shape, box::whole(shape));
  REQUIRE(sink.bytes[0].size() == wanted.size() * 8);
  CHECK(std::memcmp(sink.bytes[0].data(), wanted.data(), wanted.size() * 8) == 0);
}

TEST_CASE("elements that are converted on the way are those of a copy") {
  const extents shape{5, 3};
  held_boxes memory;
  memory.add(shape, box::whole(shape), 0);
  const tensor_transfer transfer{memory.held(shape), items_of(shape, {box::whole(shape)}), dtype::int64,
                                 dtype::float32};
  recording_sink sink;
  REQUIRE(write_items({&transfer, 1}, {}, memory.source, sink, {.threads = 1}));
  std::vector<float> wanted(15);
  std::iota(wanted.begin(), wanted.end(), 0.0F);
  REQUIRE(sink.bytes[0].size() == 60);
  CHECK(std::memcmp(sink.bytes[0].data(), wanted.data(), 60) == 0);
}

TEST_CASE("cells that no memory holds, or two that are not equal, are refused with the key and not written") {
  const extents shape{4, 2};
  const std::string key = "w";
  const auto refusal = [&](const std::vector<box>& boxes) {
    held_boxes memory;
    for (const box& where : boxes) memory.add(shape, where, 0);
    const tensor_transfer transfer{memory.held(shape), items_of(shape, {box::whole(shape)}), dtype::int64,
                                   dtype::int64};
    recording_sink sink;
    const auto done = write_items({&transfer, 1}, {&key, 1}, memory.source, sink);
    REQUIRE_FALSE(done);
    CHECK(sink.bytes.empty());
    CHECK(done.error().key == "w");
    return done.error().code;
  };
  CHECK(refusal({{{0, 0}, {3, 2}}}) == errc::gap);
  CHECK(refusal({{{0, 0}, {3, 2}}, {{2, 0}, {2, 2}}}) == errc::overlap);
}

TEST_CASE("a cancelled write says so, with the key; a budget below the least is refused as anywhere") {
  const extents shape{4, 2};
  held_boxes memory;
  memory.add(shape, box::whole(shape), 0);
  const tensor_transfer transfer{memory.held(shape), items_of(shape, {box::whole(shape)}), dtype::int64, dtype::int64};
  const std::string key = "w";
  recording_sink sink;
  std::stop_source stop;
  stop.request_stop();
  const auto cancelled =
      write_items({&transfer, 1}, {&key, 1}, memory.source, sink, {.call = {.cancel = stop.get_token()}});
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error().code == errc::cancelled);
  CHECK(cancelled.error().key == "w");
  const auto refused = write_items({&transfer, 1}, {&key, 1}, memory.source, sink, {.memory_bytes = 1 << 20});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::no_memory);
  CHECK(sink.bytes.empty());
}
