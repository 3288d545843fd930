// SPDX-License-Identifier: Apache-2.0
// Compares the executor over items with a brute-force model: a tensor's elements are their own indices.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <vector>

import shardmesh.transfer;

using namespace shardmesh;

namespace {

// Items in memory: element i of the global tensor has value i. Counts the reads.
struct index_items {
  std::map<std::int32_t, fragment> fragments;
  extents shape;
  bool in_order = false;
  std::mutex lock;
  std::int64_t elements_read = 0;
  std::map<std::int32_t, std::int64_t> next_row_major;  // for in-order items

  result<void> read(item_id item, const box& part, const tensor_view& to) {
    const fragment& f = fragments.at(item.slot);
    const extents strides = contiguous_strides(shape);
    std::vector<std::int64_t> values;
    const auto fill = [&](auto& self, std::size_t d, std::int64_t index) -> void {
      if (d == part.rank()) return values.push_back(index);
      for (std::int64_t i = 0; i < part.sizes[d]; ++i)
        self(self, d + 1, index + (f.where.offsets[d] + part.offsets[d] + i) * strides[d]);
    };
    fill(fill, 0, 0);
    {
      const std::scoped_lock guard(lock);
      elements_read += part.volume();
      if (in_order) {
        const extents own = contiguous_strides(f.where.sizes);
        std::int64_t first = 0;
        for (std::size_t d = 0; d < part.rank(); ++d) first += part.offsets[d] * own[d];
        CHECK(first >= next_row_major[item.slot]);
        next_row_major[item.slot] = first;
      }
    }
    const tensor_view from{
        reinterpret_cast<std::byte*>(values.data()), dtype::int64, {}, part.sizes, contiguous_strides(part.sizes)};
    return copy(to, from);
  }
  bool reads_in_order(item_id) { return in_order; }
};

struct byte_items {
  std::map<std::int32_t, std::vector<std::byte>> bytes;
  std::mutex lock;
  result<void> write(item_id item, std::int64_t first_byte, std::span<const std::byte> more) {
    const std::scoped_lock guard(lock);
    auto& all = bytes[item.slot];
    if (static_cast<std::int64_t>(all.size()) != first_byte) return fail(errc::io, "not front to back");
    all.insert(all.end(), more.begin(), more.end());
    return {};
  }
};

// Cuts a box in two along random dimensions until there are about `count` pieces: uneven guillotine cuts, some empty.
std::vector<box> random_tiling(std::mt19937_64& random, const extents& shape, int count) {
  std::vector<box> pieces{box::whole(shape)};
  for (int i = 1; i < count && shape.rank() > 0; ++i) {
    const std::size_t which = random() % pieces.size();
    const std::size_t d = random() % shape.rank();
    box left = pieces[which], right = left;
    const std::int64_t cut = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(left.sizes[d] + 1));
    left.sizes[d] = cut;
    right.offsets[d] += cut;
    right.sizes[d] -= cut;
    pieces[which] = left;
    pieces.push_back(right);
  }
  return pieces;
}

distribution to_distribution(const extents& shape, const std::vector<box>& boxes,
                             std::map<std::int32_t, fragment>* by_slot = nullptr) {
  std::vector<fragment> fragments;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    fragments.push_back(
        {boxes[i], static_cast<owner_id>(i % 3), static_cast<std::int32_t>(i), extents::filled(shape.rank(), 0), 0});
    if (by_slot) (*by_slot)[static_cast<std::int32_t>(i)] = fragments.back();
  }
  return distribution::from_fragments(shape, fragments, owner_space::items).value();
}

extents random_shape(std::mt19937_64& random) {
  extents shape;
  const std::size_t rank = random() % 5;
  for (std::size_t d = 0; d < rank; ++d) shape.push_back(static_cast<std::int64_t>(random() % 12));
  return shape;
}

std::vector<std::int64_t> expected_values(const extents& shape, const box& where) {
  std::vector<std::int64_t> values;
  const extents strides = contiguous_strides(shape);
  const auto fill = [&](auto& self, std::size_t d, std::int64_t index) -> void {
    if (d == where.rank()) return values.push_back(index);
    for (std::int64_t i = 0; i < where.sizes[d]; ++i) self(self, d + 1, index + (where.offsets[d] + i) * strides[d]);
  };
  if (!where.is_empty()) fill(fill, 0, 0);
  return values;
}

}  // namespace

TEST_CASE("slabs tile a region in row-major order and are contiguous in every box they meet") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const extents shape = random_shape(random);
    const std::int64_t most = 1 + static_cast<std::int64_t>(random() % 40);
    std::vector<std::int64_t> visited;
    slab_walk walk(box::whole(shape), most);
    while (const auto slab = walk.next()) {
      CHECK(slab->volume() <= most);
      const auto values = expected_values(shape, *slab);
      visited.insert(visited.end(), values.begin(), values.end());
    }
    CHECK(visited == expected_values(shape, box::whole(shape)));
  }
}

TEST_CASE("rewriting items gives every destination its elements, front to back, for any two tilings") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const extents shape = random_shape(random);
    index_items source;
    source.shape = shape;
    source.in_order = random() % 2 == 0;
    const auto from_boxes = random_tiling(random, shape, 1 + static_cast<int>(random() % 8));
    const auto to_boxes = random_tiling(random, shape, 1 + static_cast<int>(random() % 8));
    const tensor_transfer transfer{to_distribution(shape, from_boxes, &source.fragments),
                                   to_distribution(shape, to_boxes), dtype::int64, dtype::int64};
    byte_items sink;
    REQUIRE(run_to_items({&transfer, 1}, {}, source, sink, {.memory_bytes = least_run_bytes, .threads = 1}));
    for (std::size_t i = 0; i < to_boxes.size(); ++i) {
      const auto wanted = expected_values(shape, to_boxes[i]);
      const auto& got = sink.bytes[static_cast<std::int32_t>(i)];
      REQUIRE(got.size() == wanted.size() * 8);
      CHECK((got.empty() || std::memcmp(got.data(), wanted.data(), got.size()) == 0));
    }
    CHECK(source.elements_read == static_cast<std::int64_t>(expected_values(shape, box::whole(shape)).size()));
  }
}

TEST_CASE("loading fills any boxes of a tensor from any tiling") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const extents shape = random_shape(random);
    index_items source;
    source.shape = shape;
    source.in_order = random() % 2 == 0;
    const distribution from =
        to_distribution(shape, random_tiling(random, shape, 1 + static_cast<int>(random() % 8)), &source.fragments);
    const auto wanted = random_tiling(random, shape, 1 + static_cast<int>(random() % 5));
    std::vector<std::vector<std::int64_t>> memory;
    std::vector<memory_target> targets;
    for (const box& where : wanted) memory.emplace_back(expected_values(shape, where).size(), -1);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      targets.push_back({0,
                         wanted[i],
                         {reinterpret_cast<std::byte*>(memory[i].data()),
                          dtype::int64,
                          {},
                          wanted[i].sizes,
                          contiguous_strides(wanted[i].sizes)}});
    REQUIRE(run_to_memory({&from, 1}, {}, targets, source, {.threads = 2}));
    for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(memory[i] == expected_values(shape, wanted[i]));
  }
}

TEST_CASE("a cell that no item holds is a gap, named with key and box, before or instead of a write") {
  index_items source;
  source.shape = {4, 2};
  const distribution from = to_distribution({4, 2}, {box{{0, 0}, {3, 2}}}, &source.fragments);
  const tensor_transfer transfer{from, to_distribution({4, 2}, {box::whole({4, 2})}), dtype::int64, dtype::int64};
  byte_items sink;
  const std::string key = "w";
  const auto moved = run_to_items({&transfer, 1}, {&key, 1}, source, sink);
  REQUIRE_FALSE(moved);
  CHECK(moved.error().code == errc::gap);
  CHECK(moved.error().key == "w");
  CHECK(sink.bytes.empty());
}

TEST_CASE("a cell that two items hold is an overlap, named with key and box, and nothing is written") {
  index_items source;
  source.shape = {4, 2};
  const distribution from = to_distribution({4, 2}, {box{{0, 0}, {3, 2}}, box{{2, 0}, {2, 2}}}, &source.fragments);
  const tensor_transfer transfer{from, to_distribution({4, 2}, {box::whole({4, 2})}), dtype::int64, dtype::int64};
  byte_items sink;
  const std::string key = "w";
  const auto moved = run_to_items({&transfer, 1}, {&key, 1}, source, sink);
  REQUIRE_FALSE(moved);
  CHECK(moved.error().code == errc::overlap);
  CHECK(moved.error().key == "w");
  CHECK(moved.error().boxes == std::vector<box>{box::whole({4, 2})});
  CHECK(sink.bytes.empty());
}

TEST_CASE("a budget below the least says what the least is") {
  index_items source;
  byte_items sink;
  const auto refused = run_to_items({}, {}, source, sink, {.memory_bytes = 1 << 20});
  REQUIRE_FALSE(refused);
  CHECK(to_string(refused.error()) == "the memory budget is too small: expected at least 4194304 bytes, found 1048576");
}

namespace {

// Zeros of one byte. Records the largest read.
struct zero_items {
  bool is_large = false;
  std::mutex lock;
  std::int64_t largest = 0, elements_read = 0;

  result<void> read(item_id, const box& part, const tensor_view& to) {
    const std::scoped_lock guard(lock);
    largest = std::max(largest, part.volume());
    elements_read += part.volume();
    const std::byte zero{};
    return copy(to, const_tensor_view{&zero, dtype::uint8, {}, part.sizes, extents::filled(part.rank(), 0)});
  }
  bool reads_in_order(item_id) { return false; }
  bool prefers_large_reads(item_id) { return is_large; }
};

}  // namespace

TEST_CASE("items that prefer large reads are read up to 64 MiB at a time, within the memory") {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  const extents shape{72, mib};
  const distribution whole = to_distribution(shape, {box::whole(shape)});
  const auto largest_read = [&](bool is_large, auto&& run) {
    zero_items source;
    source.is_large = is_large;
    run(source);
    CHECK(source.elements_read == 72 * mib);
    return source.largest;
  };
  std::vector<std::byte> memory(static_cast<std::size_t>(72 * mib));
  const auto load = [&](zero_items& source) {
    const memory_target target{
        0, box::whole(shape), {memory.data(), dtype::uint8, {}, shape, contiguous_strides(shape)}};
    REQUIRE(run_to_memory({&whole, 1}, {}, {&target, 1}, source, {.threads = 2}));
  };
  CHECK(largest_read(false, load) == 8 * mib);
  CHECK(largest_read(true, load) == 64 * mib);
  const auto load_halves = [&](zero_items& source) {  // the left and the right columns
    std::vector<memory_target> targets;
    for (const std::int64_t column : {std::int64_t{0}, mib / 2}) {
      const box half{{0, column}, {72, mib / 2}};
      const tensor_view all{memory.data(), dtype::uint8, {}, shape, contiguous_strides(shape)};
      targets.push_back({0, half, subview(all, half)});
    }
    REQUIRE(run_to_memory({&whole, 1}, {}, targets, source, {.threads = 2}));
  };
  CHECK(largest_read(false, load_halves) == mib);
  CHECK(largest_read(true, load_halves) == 32 * mib);
  const auto write_with = [&](std::int64_t memory_bytes) {
    return [&, memory_bytes](zero_items& source) {
      const tensor_transfer transfer{whole, whole, dtype::uint8, dtype::uint8};
      byte_items sink;
      REQUIRE(run_to_items({&transfer, 1}, {}, source, sink, {.memory_bytes = memory_bytes, .threads = 1}));
    };
  };
  CHECK(largest_read(false, write_with(1024 * mib)) == 8 * mib);
  CHECK(largest_read(true, write_with(1024 * mib)) == 64 * mib);
  CHECK(largest_read(true, write_with(61 * mib)) == 20 * mib);
}
