// SPDX-License-Identifier: Apache-2.0
// Tests a Kokkos::View as a tensor: the view reads the same values as Kokkos at every index.
#include "views.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstring>
#include <indices.hpp>
#include <memory>
#include <random_seed.hpp>
#include <string>
#include <vector>

import shardmesh.kokkos;
import shardmesh.test.reference_kernels;

using namespace shardmesh;

TEST_CASE("every element of a Kokkos::View is where its tensor_view says") {
  int ranks[9] = {};
  for (const std::uint64_t seed : random_seed::seeds(20))
    views::for_each_view(seed, [&](const views::made_view& made) {
      INFO(made.name << ", seed " << seed << ": " << to_string(made.view.sizes) << " " << to_string(made.view.strides));
      ++ranks[made.view.sizes.rank()];
      indices::for_each(made.view.sizes, [&](const extents& index) {
        const std::byte* at = made.view.data;
        for (std::size_t d = 0; d < index.rank(); ++d)
          at += index[d] * made.view.strides[d] * item_bytes(made.view.type);
        REQUIRE(reference::load(made.view.type, at).real == made.at(index));
      });
    });
  for (const int views : ranks) CHECK(views > 0);
}

TEST_CASE("a batch on Kokkos packs a Kokkos::View") {
  const auto backend = kokkos_backend().value();
  views::for_each_view(7, [&](const views::made_view& made) {
    INFO(made.name);
    const extents row_major = contiguous_strides(made.view.sizes);
    std::vector<std::byte> packed(static_cast<std::size_t>(numel(made.view) * item_bytes(made.view.type)));
    batch_builder work;
    const const_tensor_view source = made.view;
    REQUIRE(work.copy({0, 0, made.view.type, made.view.sizes, row_major}, place(0, made.view.data, source)));
    const auto batch = backend->prepare(work.items(), {}).value();
    std::byte* const to[] = {packed.data()};
    const std::byte* const from[] = {made.view.data};
    REQUIRE(backend->run(*batch, {to, from}, {}));
    indices::for_each(made.view.sizes, [&](const extents& index) {
      const auto number = static_cast<std::size_t>(indices::row_major(index, made.view.sizes));
      const std::byte* const at = packed.data() + number * static_cast<std::size_t>(item_bytes(made.view.type));
      REQUIRE(reference::load(made.view.type, at).real == made.at(index));
    });
  });
}

TEST_CASE("what a Kokkos::View is as a tensor follows from its type") {
  CHECK(views::wrong_properties() == "");
}

TEST_CASE("a Kokkos::View is allocated with the sizes that are asked for") {
  for (const extents& sizes : {extents{2, 3, 4}, extents{0, 3, 4}, extents{1, 1, 1}})
    views::with_allocated(sizes, [&](const tensor_view& view) {
      CHECK(view.sizes == sizes);
      CHECK(is_contiguous(view));
      CHECK(view.type == dtype::float64);
    });
}
