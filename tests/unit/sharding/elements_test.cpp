// SPDX-License-Identifier: Apache-2.0
// Compares for_each_element with a model: a rank holds a list of indices per dimension, which every mesh dimension
// chunks. Also tests allocation, strides, nesting, and wrong types.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <dice.hpp>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fake_tensor.hpp"
#include "foreign_shards.hpp"
#include "random_seed.hpp"
#include "random_segments.hpp"
import shardmesh.sharding;

using namespace shardmesh;

namespace {

using indices_held = std::vector<std::int64_t>;

// torch.chunk: pieces of ceil(n / parts), perhaps fewer of them.
indices_held chunk(const indices_held& all, std::int64_t parts, std::int64_t index) {
  const auto n = static_cast<std::int64_t>(all.size());
  const std::int64_t size = (n + parts - 1) / parts;
  const std::int64_t begin = std::min(n, size * index), end = std::min(n, begin + size);
  return {all.begin() + begin, all.begin() + end};
}

// The indices that one mesh coordinate holds in each dimension, in local order.
std::vector<indices_held> local_view_of_model(const extents& shape, const extents& mesh,
                                              const std::vector<placement>& placements, const extents& coordinate) {
  std::vector<indices_held> held(shape.rank());
  for (std::size_t d = 0; d < shape.rank(); ++d)
    for (std::int64_t i = 0; i < shape[d]; ++i) held[d].push_back(i);
  for (std::size_t m = 0; m < mesh.rank(); ++m) {
    const placement& p = placements[m];
    if (!p.is_shard()) continue;
    auto& dimension = held[static_cast<std::size_t>(p.dim)];
    indices_held mine;
    std::int64_t end = 0;
    for (const std::int64_t size : p.segments()) {
      const std::int64_t begin = end;
      end += size;
      indices_held segment;
      for (const std::int64_t i : dimension)
        if (i >= begin && i < end) segment.push_back(i);
      const auto part = chunk(segment, mesh[m], coordinate[m]);
      mine.insert(mine.end(), part.begin(), part.end());
    }
    for (std::int64_t piece = 0; p.segments().empty() && piece < p.split_factor; ++piece) {
      const auto part = chunk(chunk(dimension, p.split_factor, piece), mesh[m], coordinate[m]);
      mine.insert(mine.end(), part.begin(), part.end());
    }
    dimension = mine;
  }
  return held;
}

// Every (local, global) pair of the model.
std::map<extents, extents> elements_of(const std::vector<indices_held>& held) {
  std::map<extents, extents> all;
  std::int64_t count = 1;
  for (const auto& list : held) count *= static_cast<std::int64_t>(list.size());
  for (std::int64_t n = 0; n < count; ++n) {
    extents local = extents::filled(held.size(), 0), global = local;
    std::int64_t rest = n;
    for (std::size_t d = held.size(); d-- > 0;) {
      local[d] = rest % static_cast<std::int64_t>(held[d].size());
      rest /= static_cast<std::int64_t>(held[d].size());
      global[d] = held[d][static_cast<std::size_t>(local[d])];
    }
    all.emplace(local, global);
  }
  return all;
}

std::int64_t number_of(const extents& index, const extents& shape) {
  std::int64_t number = 0;
  for (std::size_t d = 0; d < shape.rank(); ++d) number = number * shape[d] + index[d];
  return number;
}

layout on(const char* mesh, const char* placements, const extents& shape) {
  return layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value();
}

}  // namespace

TEST_CASE("every element of a random layout is visited once, at the indices of a model") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice roll(seed);
  for (int run = 0; run < 400; ++run) {
    extents shape, mesh;
    for (std::int64_t d = roll.up_to(3); d > 0; --d) shape.push_back(roll.one_in(8) ? 0 : 1 + roll.up_to(8));
    for (std::int64_t d = 1 + roll.up_to(1); d > 0; --d) mesh.push_back(1 + roll.up_to(3));
    std::vector<placement> placements;
    for (std::size_t m = 0; m < mesh.rank(); ++m) {
      const auto dim = static_cast<std::int32_t>(roll.below(static_cast<std::int64_t>(shape.rank())));
      if (shape.empty() || roll.one_in(3))
        placements.push_back(placement::replicate());
      else
        placements.push_back(roll.one_in(3)   ? placement::strided_shard(dim, 1 + roll.up_to(3))
                             : roll.one_in(3) ? placement::shard_segments(
                                                    dim, random_segments(roll, shape[static_cast<std::size_t>(dim)]))
                                              : placement::shard(dim));
    }
    const layout l = layout::make(device_mesh::make(mesh).value(), placements, shape).value();
    INFO("run " << run << ": " << to_string(l));
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(l.mesh().size()); ++rank) {
      const auto wanted = elements_of(local_view_of_model(shape, mesh, placements, *l.mesh().coordinate_of(rank)));
      std::map<extents, extents> found;
      bool once = true;
      for_each_element(l, rank, [&](const extents& global, const extents& local) {
        once = found.emplace(local, global).second && once;
      }).value();
      REQUIRE(found == wanted);
      CHECK(once);

      auto tensor = dtensor<host_tensor>::allocate(l, rank, dtype::int64).value();
      std::ranges::fill(tensor.local().values<std::int64_t>(), -1);
      for_each_element<std::int64_t>(tensor, [&](const extents& global, std::int64_t& value) {
        value = number_of(global, shape);
      }).value();
      std::vector<std::int64_t> numbers;  // row-major, the order of the model's map
      for (const auto& [local, global] : wanted) numbers.push_back(number_of(global, shape));
      CHECK(std::ranges::equal(tensor.local().values<std::int64_t>(), numbers));
      std::size_t seen = 0;
      for_each_element<std::int64_t>(std::as_const(tensor), [&](const extents& global, const std::int64_t& value) {
        seen += value == number_of(global, shape) ? 1 : 0;
      }).value();
      CHECK(seen == numbers.size());
      std::map<extents, extents> of_tensor;
      for_each_element(tensor, [&](const extents& global, const extents& local) {
        of_tensor.emplace(local, global);
      }).value();
      CHECK(of_tensor == wanted);
    }
  }
}

TEST_CASE("a tensor beside its layout is visited through its strides") {
  // Columns 2 and 3 of a [2, 4] tensor on rank 1, transposed and backwards in memory.
  std::vector<float> memory(8, 0.0F);
  fake_tensor part = fake_tensor::make({2, 2});
  part.memory = std::make_shared<std::vector<std::byte>>(32);
  part.strides = {1, 4};
  const layout l = on("2", "S(1)", {2, 4});
  for_each_element<float>(l, 1, part, [](const extents& global, float& value) {
    value = static_cast<float>(10 * global[0] + global[1]);
  }).value();
  const auto* values = reinterpret_cast<const float*>(part.memory->data());
  CHECK(std::vector(values, values + 6) == std::vector{2.0F, 12.0F, 0.0F, 0.0F, 3.0F, 13.0F});
  float sum = 0;
  for_each_element<float>(l, 1, std::as_const(part), [&](const extents&, const float& value) { sum += value; }).value();
  CHECK(sum == 30.0F);
  int visits = 0;
  for_each_element<float>(on("2", "S(0)", {1}), 1, part, [&](const extents&, float&) { ++visits; }).value();
  for_each_element(l, 2, [&](const extents&, const extents&) { ++visits; }).value();
  for_each_element(l, -1, [&](const extents&, const extents&) { ++visits; }).value();
  CHECK(visits == 0);
}

TEST_CASE("a scalar has one element, without indices") {
  auto tensor = dtensor<host_tensor>::allocate(on("2", "R", {}), 1, dtype::float64).value();
  for_each_element<double>(tensor, [](const extents& global, double& value) {
    value = 4 + static_cast<double>(global.rank());
  }).value();
  CHECK(tensor.local().values<double>()[0] == 4.0);
}

TEST_CASE("the elements of a shard have the indices of the whole tensor") {
  const shard_metadata place{{2, 1}, {2, 2}, remote_device{0, "", {}}};
  auto one = shard<host_tensor>::make(host_tensor::zeros(dtype::int32, {2, 2}).value(), place).value();
  for_each_element<std::int32_t>(one, [](const extents& global, std::int32_t& value) {
    value = static_cast<std::int32_t>(10 * global[0] + global[1]);
  }).value();
  const std::vector<std::int32_t> wanted{21, 22, 31, 32};
  CHECK(std::ranges::equal(one.tensor().values<std::int32_t>(), wanted));
  std::vector<std::pair<extents, extents>> found;
  for_each_element(std::as_const(one), [&](const extents& global, const extents& local) {
    found.emplace_back(global, local);
  }).value();
  CHECK(found == std::vector<std::pair<extents, extents>>{
                     {{2, 1}, {0, 0}}, {{2, 2}, {0, 1}}, {{3, 1}, {1, 0}}, {{3, 2}, {1, 1}}});
}

TEST_CASE("another framework's shards are visited, nested ones down to the innermost, and refused by rank and box") {
  const auto piece = [](std::vector<std::int64_t> begin, std::vector<std::int32_t> length) {
    return foreign::piece{std::move(begin), std::move(length), 5, {}, {}};
  };
  const auto held = [&](const foreign::piece& place, std::vector<std::int64_t> sizes) {
    return foreign::held_piece{
        place, std::make_shared<std::vector<std::int64_t>>(8), sizes, {sizes[1], 1}, dtype::int64, nullptr};
  };
  // Rows 4 and 5 of a [6, 4] tensor; this process holds their columns 1 to 3.
  foreign::held_piece outer{piece({4, 0}, {2, 4}), nullptr, {}, {}, dtype::int64, nullptr};
  outer.inside = std::make_shared<foreign::cut_tensor>();
  outer.inside->facts = {{piece({0, 1}, {2, 3})}, {2, 4}, {}};
  outer.inside->mine = {held(piece({0, 1}, {2, 3}), {2, 3})};
  outer.inside->processes = {5};
  for_each_element<std::int64_t>(outer, [](const extents& global, std::int64_t& value) {
    value = 10 * global[0] + global[1];
  }).value();
  CHECK(*outer.inside->mine[0].values == std::vector<std::int64_t>{41, 42, 43, 51, 52, 53, 0, 0});

  const auto nothing = [](const extents&, std::int64_t&) { FAIL("no element is visited"); };
  auto wrong = held(piece({4, 0}, {2, 4}), {2, 3});
  auto refused = for_each_element<std::int64_t>(wrong, nothing);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::shape_mismatch);
  CHECK(refused.error().ranks == std::vector<std::int32_t>{5});
  CHECK(refused.error().boxes == std::vector<box>{{{4, 0}, {2, 4}}});
  CHECK(refused.error().expected == "[2, 4]");
  CHECK(refused.error().found == "[2, 3]");
  auto no_box = held(piece({4, -1}, {2, 3}), {2, 3});
  CHECK(for_each_element<std::int64_t>(no_box, nothing).error().code == errc::out_of_bounds);
  outer.inside->facts.shape = {2, 5};
  CHECK(for_each_element<std::int64_t>(outer, nothing).error().code == errc::shape_mismatch);
  auto cyclic = outer;
  cyclic.place = piece({0, 0}, {2, 4});
  cyclic.inside = std::make_shared<foreign::cut_tensor>();
  cyclic.inside->facts = {{piece({0, 0}, {2, 4})}, {2, 4}, {}};
  cyclic.inside->mine = {cyclic};
  CHECK(for_each_element<std::int64_t>(cyclic, nothing).error().code == errc::invalid_argument);
  cyclic.inside->mine.clear();
}

TEST_CASE(
    "elements of another type, on another device, unaligned or of another part are refused before any is visited") {
  const layout l = on("2", "S(0)", {4});
  auto tensor = dtensor<host_tensor>::allocate(l, 1, dtype::float32).value();
  int visits = 0;
  auto refused = for_each_element<std::int32_t>(tensor, [&](const extents&, std::int32_t&) { ++visits; });
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::dtype_mismatch);
  CHECK(refused.error().ranks == std::vector<std::int32_t>{1});
  CHECK(refused.error().expected == "int32");
  CHECK(refused.error().found == "float32");
  const auto visit = [&](const extents&, float&) { ++visits; };
  fake_tensor elsewhere = fake_tensor::make({2});
  elsewhere.where = {device_type::cuda, 0};
  CHECK(for_each_element<float>(l, 0, elsewhere, visit).error().code == errc::unsupported);
  fake_tensor whole = fake_tensor::make({4});
  auto too_large = for_each_element<float>(l, 0, whole, visit);
  CHECK(too_large.error().code == errc::shape_mismatch);
  CHECK(too_large.error().expected == "[2]");
  CHECK(too_large.error().found == "[4]");
  const fragment two[] = {{{{0}, {1}}, 0, 0, {0}, 0}, {{{1}, {1}}, 0, 1, {0}, 0}};
  fake_tensor one = fake_tensor::make({1});
  CHECK(for_each_element<float>(distribution::from_fragments({2}, two, owner_space::ranks).value(), 0, one, visit)
            .error()
            .code == errc::unsupported);
  CHECK(visits == 0);
}

namespace {

// Memory that begins in the middle of an element.
struct crooked {
  alignas(8) std::byte memory[16]{};
};

// A tensor type whose allocation always fails.
struct scarce {};

}  // namespace

template <>
struct shardmesh::adapter<crooked> {
  static tensor_view view(const crooked& t) {
    return {const_cast<std::byte*>(t.memory) + 1, dtype::float32, {}, {2}, {1}};
  }
};
template <>
struct shardmesh::adapter<scarce> {
  static tensor_view view(const scarce&) { return {}; }
  static scarce allocate(dtype, const extents&, device) { throw std::bad_alloc(); }
};

TEST_CASE("memory that is not aligned to its elements is refused") {
  crooked part;
  const auto refused = for_each_element<float>(on("2", "S(0)", {4}), 0, part, [](const extents&, float&) {});
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::unaligned);
}

TEST_CASE("a dtensor is allocated as large as the rank's part, and refused outside the mesh and without memory") {
  const layout l = on("2,2", "S(0),S(1)", {5, 3});
  const auto made = dtensor<host_tensor>::allocate(l, 1, dtype::float16).value();
  CHECK(made.local().sizes() == extents{3, 1});
  CHECK(made.local().type() == dtype::float16);
  CHECK(made.rank() == 1);
  CHECK(made.layout() == l);
  for (const std::int32_t outside : {-1, 4}) {
    const auto refused = dtensor<host_tensor>::allocate(l, outside, dtype::float16);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::invalid_argument);
    CHECK(refused.error().ranks == std::vector{outside});
    CHECK(refused.error().expected == "a rank of mesh 2,2");
  }
  const auto no_memory = dtensor<scarce>::allocate(l, 2, dtype::float32);
  REQUIRE(!no_memory);
  CHECK(no_memory.error().ranks == std::vector<std::int32_t>{2});
  CHECK(to_string(no_memory.error()).find("[2, 2]") != std::string::npos);
  const auto huge = dtensor<host_tensor>::allocate(on("1", "R", {std::int64_t{1} << 60}), 0, dtype::float64);
  REQUIRE(!huge);
  CHECK(huge.error().ranks == std::vector<std::int32_t>{0});
}
