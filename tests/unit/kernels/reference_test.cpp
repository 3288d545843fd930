// SPDX-License-Identifier: Apache-2.0
// Compares every backend of the kernels with the reference: every pair of dtypes and every operation, over random
// views. Views are strided, broadcast, transposed, misaligned, empty, or 0-d, with NaNs, infinities, -0, and
// subnormals. The comparison is bit for bit, and any NaN equals any NaN. A new backend is one more type in `backends`.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <indices.hpp>
#include <random_seed.hpp>
#include <random_views.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

import shardmesh.kernels;
import shardmesh.test.reference_kernels;
import shardmesh.test.special_views;

using namespace shardmesh;
using random_views::owned_view;
using special_views::difference, special_views::in_copy, special_views::make;

namespace {

// The kernels of this module. A backend of other memory moves the views there and back in its functions.
struct host {
  static constexpr const char* name = "host";
  static constexpr auto& copy = shardmesh::copy;
  static constexpr auto& accumulate = shardmesh::accumulate;
  static constexpr auto& fill_identity = shardmesh::fill_identity;
  static constexpr auto& scale = shardmesh::scale;
  static constexpr auto& divide = shardmesh::divide;
  static constexpr auto& byte_swap = shardmesh::byte_swap;
  static constexpr auto& conjugate = shardmesh::conjugate;
  static constexpr auto& negate = shardmesh::negate;
  static constexpr auto& compare = shardmesh::compare;
};
using backends = std::tuple<host>;

constexpr reduce_op all_ops[] = {reduce_op::sum, reduce_op::avg,  reduce_op::product, reduce_op::min,
                                 reduce_op::max, reduce_op::band, reduce_op::bor,     reduce_op::bxor};

// Some lines are longer than a pass of the tuned kernels.
extents sizes_of(std::mt19937_64& random) {
  if (random() % 4 == 0) return {static_cast<std::int64_t>(random() % 700)};
  if (random() % 12 == 0) return {};
  return random_views::random_sizes(random);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a backend converts between every two dtypes as the reference does", "", backends) {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  int pairs = 0;
  for (const dtype to_type : all_dtypes())
    for (const dtype from_type : all_dtypes()) {
      if (!is_convertible(from_type, to_type) || bits(to_type) % 8 != 0) continue;
      ++pairs;
      INFO(TestType::name << ": " << name(from_type) << " to " << name(to_type));
      for (std::uint64_t round = 0; round < random_seed::rounds(from_type == to_type ? 40 : 5); ++round) {
        const extents sizes = sizes_of(random);
        const owned_view to = make(random, sizes, to_type, false), from = make(random, sizes, from_type, true);
        std::vector<std::byte> expected;
        const tensor_view wanted = in_copy(to, expected);
        reference::copy(wanted, from.view);
        INFO(to_string(sizes) << " " << to_string(to.view.strides) << " " << to_string(from.view.strides));
        REQUIRE(TestType::copy(to.view, from.view));
        REQUIRE(difference(to, wanted, expected) == "");
      }
    }
  CHECK(pairs == 21 * 21 + 7);  // convertible pairs, and types that only copy to themselves in whole bytes
}

TEMPLATE_LIST_TEST_CASE("a backend combines terms as the reference does, in every dtype and with every operation", "",
                        backends) {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const dtype to_type : all_dtypes())
    for (const reduce_op op : all_ops) {
      if (!is_combinable(to_type, op)) continue;
      for (const dtype from_type : all_dtypes()) {
        if (!is_convertible(from_type, to_type) || (from_type != to_type && random() % 4 != 0)) continue;
        INFO(TestType::name << ": " << to_string(op) << " of " << name(from_type) << " into " << name(to_type));
        for (std::uint64_t round = 0; round < random_seed::rounds(from_type == to_type ? 6 : 2); ++round) {
          const extents sizes = sizes_of(random);
          const owned_view to = make(random, sizes, to_type, false), from = make(random, sizes, from_type, true);
          std::vector<std::byte> expected;
          const tensor_view wanted = in_copy(to, expected);
          reference::accumulate(wanted, from.view, op);
          INFO(to_string(sizes) << " " << to_string(to.view.strides) << " " << to_string(from.view.strides));
          REQUIRE(TestType::accumulate(to.view, from.view, op));
          REQUIRE(difference(to, wanted, expected) == "");
        }
      }
    }
}

TEMPLATE_LIST_TEST_CASE("a backend changes one view as the reference does", "", backends) {
  struct change {
    const char* name;
    result<void> (*run)(const tensor_view&);
    void (*expect)(const tensor_view&);
  };
  const change changes[] = {
      {"byte_swap", [](const tensor_view& v) { return TestType::byte_swap(v); }, reference::byte_swap},
      {"conjugate", [](const tensor_view& v) { return TestType::conjugate(v); }, reference::conjugate},
      {"negate", [](const tensor_view& v) { return TestType::negate(v); }, reference::negate},
      {"scale", [](const tensor_view& v) { return TestType::scale(v, -0.375); },
       [](const tensor_view& v) { reference::scale(v, -0.375); }},
      {"divide", [](const tensor_view& v) { return TestType::divide(v, 3); },
       [](const tensor_view& v) { reference::divide(v, 3); }},
  };
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const change& one : changes)
    for (const dtype type : all_dtypes()) {
      if (bits(type) == 0 || bits(type) % 8 != 0) continue;
      INFO(TestType::name << ": " << one.name << " of " << name(type));
      for (std::uint64_t round = 0; round < random_seed::rounds(8); ++round) {
        const owned_view view = make(random, sizes_of(random), type, false);
        std::vector<std::byte> expected;
        const tensor_view wanted = in_copy(view, expected);
        const auto done = one.run(view.view);
        if (!done) {  // elementwise_test.cpp and reduce_test.cpp test the dtypes of each operation
          REQUIRE(done.error().code == errc::unsupported);
          REQUIRE(view.memory == expected);
          break;
        }
        one.expect(wanted);
        REQUIRE(difference(view, wanted, expected) == "");
      }
    }
}

TEMPLATE_LIST_TEST_CASE("a backend fills with the identities of the reference", "", backends) {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const dtype type : all_dtypes())
    for (const reduce_op op : all_ops) {
      if (!is_combinable(type, op)) continue;
      INFO(TestType::name << ": " << to_string(op) << " of " << name(type));
      const owned_view view = make(random, sizes_of(random), type, false);
      std::vector<std::byte> expected;
      const tensor_view wanted = in_copy(view, expected);
      reference::fill_identity(wanted, op);
      REQUIRE(TestType::fill_identity(view.view, op));
      REQUIRE(difference(view, wanted, expected) == "");
    }
}

TEMPLATE_LIST_TEST_CASE("a backend counts the differences that the reference counts, and names the first", "",
                        backends) {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::int64_t all = 0;
  for (const dtype type : all_dtypes()) {
    if (bits(type) == 0 || bits(type) % 8 != 0) continue;
    INFO(TestType::name << ": " << name(type));
    for (std::uint64_t round = 0; round < random_seed::rounds(12); ++round) {
      const extents sizes = sizes_of(random);
      const owned_view a = make(random, sizes, type, true), b = make(random, sizes, type, false);
      reference::copy(b.view, a.view);
      indices::for_each(sizes, [&](const extents& index) {
        if (random() % 40 == 0) *b.at(index) ^= static_cast<std::byte>(random());
      });
      const auto wanted = reference::compare(a.view, b.view);
      const auto found = TestType::compare(a.view, b.view, compare_options{});
      REQUIRE(found);
      REQUIRE(found->different == wanted.different);
      REQUIRE(found->first_index == wanted.first_index);
      all += wanted.different;
    }
  }
  CHECK(all > 1000);
}

TEMPLATE_LIST_TEST_CASE("a backend copies rows of sub-byte types bit for bit", "", backends) {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (const dtype type : {dtype::float4_e2m1fn, dtype::float6_e2m3, dtype::float6_e3m2})
    for (std::uint64_t round = 0; round < random_seed::rounds(60); ++round) {
      // Rows of whole bytes, with a gap after each.
      const auto number = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
      const std::int64_t rows = number(9), columns = 4 * number(30);
      const std::int64_t to_row = columns + 4 * number(3), from_row = columns + 4 * number(3);
      const auto bytes = [&](std::int64_t row) {
        std::vector<std::byte> made(static_cast<std::size_t>(rows * row * bits(type) / 8) + 1);
        for (std::byte& b : made) b = static_cast<std::byte>(random());
        return made;
      };
      std::vector<std::byte> got = bytes(to_row), expected = got, from = bytes(from_row);
      const const_tensor_view source{from.data(), type, {}, {rows, columns}, {from_row, 1}};
      reference::copy({expected.data(), type, {}, {rows, columns}, {to_row, 1}}, source);
      INFO(TestType::name << ": " << name(type) << " " << rows << " x " << columns);
      REQUIRE(TestType::copy({got.data(), type, {}, {rows, columns}, {to_row, 1}}, source));
      REQUIRE(got == expected);
    }
}
