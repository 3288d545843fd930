// SPDX-License-Identifier: Apache-2.0
// Compares boxes and byte ranges of computed sources with a walk over every element, and checks the boxes that a
// derived class is asked to make.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dice.hpp>
#include <random_seed.hpp>
#include <span>
#include <utility>
#include <vector>

import shardmesh.checkpoint_core;

using namespace shardmesh;

namespace {

// Element i, in row-major order, has the value i.
class counting_up final : public computed_source {
 public:
  counting_up(extents sizes, extents pieces, bool is_large)
      : computed_source(dtype::int32, std::move(sizes), "computed"), pieces_(std::move(pieces)), is_large_(is_large) {}
  bool prefers_large_reads() const override { return is_large_; }

  mutable std::vector<box> made;

 private:
  result<void> make(const box& part, const tensor_view& to) const override {
    made.push_back(part);
    if (to.type != type() || !is_contiguous(to) || to.sizes != part.sizes || part.is_empty())
      return fail(errc::invalid_argument, "a wrong view").with_box(part);
    const extents strides = contiguous_strides(sizes());
    extents index = extents::filled(part.rank(), 0);
    for (std::int64_t i = 0; i < part.volume(); ++i) {
      std::int32_t value = 0;
      for (std::size_t d = 0; d < part.rank(); ++d)
        value += static_cast<std::int32_t>((part.offsets[d] + index[d]) * strides[d]);
      std::memcpy(to.data + i * 4, &value, 4);
      for (std::size_t d = part.rank(); d > 0 && ++index[d - 1] == part.sizes[d - 1];) index[--d] = 0;
    }
    return {};
  }
  extents piece_sizes(const extents& sizes) const override {
    if (pieces_.rank() != sizes.rank()) return computed_source::piece_sizes(sizes);
    extents cut = sizes;
    for (std::size_t d = 0; d < cut.rank(); ++d) cut[d] = std::min(cut[d], pieces_[d]);
    return cut;
  }

  extents pieces_;
  bool is_large_;
};

// The elements of a box of `counting_up`, in row-major order.
std::vector<std::int64_t> values_of(const extents& shape, const box& part) {
  std::vector<std::int64_t> made;
  const extents strides = contiguous_strides(shape);
  const auto walk = [&](auto& self, std::size_t d, std::int64_t at) -> void {
    if (d == shape.rank()) return made.push_back(at);
    for (std::int64_t i = 0; i < part.sizes[d]; ++i) self(self, d + 1, at + (part.offsets[d] + i) * strides[d]);
  };
  walk(walk, 0, 0);
  return made;
}

template <class T>
std::vector<T> read_part(const computed_source& source, const box& part, dtype type) {
  std::vector<T> made(static_cast<std::size_t>(part.volume()), T(-1));
  source
      .read_part(part,
                 {reinterpret_cast<std::byte*>(made.data()), type, {}, part.sizes, contiguous_strides(part.sizes)})
      .value();
  return made;
}

}  // namespace

TEST_CASE("any box of a computed source has its elements, whatever pieces the source chooses") {
  dice roll(random_seed::seed());
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  for (int round = 0; round < 300; ++round) {
    const auto rank = static_cast<std::size_t>(roll.below(5));
    extents shape = extents::filled(rank, 0), pieces = extents::filled(rank, 0);
    for (std::size_t d = 0; d < rank; ++d) shape[d] = 1 + roll.below(6), pieces[d] = 1 + roll.below(4);
    box part = box::whole(shape);
    for (std::size_t d = 0; d < rank; ++d) {
      part.offsets[d] = roll.below(shape[d] + 1);
      part.sizes[d] = roll.below(shape[d] - part.offsets[d] + 1);
    }
    const counting_up source(shape, roll.one_in(2) ? pieces : extents{}, roll.one_in(3));
    const std::vector<std::int64_t> expected = values_of(shape, part);
    CHECK(read_part<std::int64_t>(source, part, dtype::int64) == expected);  // converted
    const std::vector<std::int32_t> same = read_part<std::int32_t>(source, part, dtype::int32);
    CHECK(std::vector<std::int64_t>(same.begin(), same.end()) == expected);
    // A strided destination: every other element of a larger one.
    if (rank == 0 || part.is_empty()) continue;
    std::vector<std::int32_t> wide(static_cast<std::size_t>(part.volume()) * 2, -1);
    extents strides = contiguous_strides(part.sizes);
    for (std::size_t d = 0; d < rank; ++d) strides[d] *= 2;
    source.read_part(part, {reinterpret_cast<std::byte*>(wide.data()), dtype::int32, {}, part.sizes, strides}).value();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(wide[2 * i] == expected[i]);
      CHECK(wide[2 * i + 1] == -1);
    }
  }
}

TEST_CASE("any byte range of a computed source has its bytes") {
  dice roll(random_seed::seed());
  INFO("SHARDMESH_SEED=" << random_seed::seed());
  const extents shape{3, 4, 5};
  const std::vector<std::int64_t> values = values_of(shape, box::whole(shape));
  const std::vector<std::int32_t> elements(values.begin(), values.end());
  const auto* const bytes = reinterpret_cast<const std::byte*>(elements.data());
  for (int round = 0; round < 200; ++round) {
    const counting_up source(shape, roll.one_in(2) ? extents{2, 3, 2} : extents{}, roll.one_in(2));
    const std::int64_t begin = roll.up_to(240), length = roll.up_to(240 - begin);
    std::vector<std::byte> read(static_cast<std::size_t>(length));
    REQUIRE(source.read(begin, read));
    CHECK(std::equal(read.begin(), read.end(), bytes + begin));
  }
  std::vector<std::byte> beyond(8);
  const auto refused = counting_up(shape, {}, false).read(236, beyond);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::out_of_bounds);
  CHECK(refused.error().file == "computed");
}

TEST_CASE("a computed source is asked for pieces of its sizes, or for the whole box if it prefers large reads") {
  const extents shape{4, 6};
  const box part{{1, 1}, {3, 5}};
  const counting_up small(shape, {2, 4}, false);
  read_part<std::int32_t>(small, part, dtype::int32);
  CHECK(small.made == std::vector<box>{{{1, 1}, {2, 4}}, {{1, 5}, {2, 1}}, {{3, 1}, {1, 4}}, {{3, 5}, {1, 1}}});
  const counting_up large(shape, {2, 4}, true);
  read_part<std::int32_t>(large, part, dtype::int32);
  CHECK(large.made == std::vector<box>{part});
  large.made.clear();
  read_part<std::int64_t>(large, part, dtype::int64);  // a conversion needs memory, so it goes piece by piece
  CHECK(large.made == small.made);
}

TEST_CASE("pieces of a computed source are rows of at most 512 KiB") {
  const extents shape{2, 3, 200'000};
  const counting_up source(shape, {}, false);
  read_part<std::int32_t>(source, {{0, 0, 0}, {1, 2, 200'000}}, dtype::int32);
  CHECK(source.made == std::vector<box>{{{0, 0, 0}, {1, 1, 131'072}},
                                        {{0, 0, 131'072}, {1, 1, 68'928}},
                                        {{0, 1, 0}, {1, 1, 131'072}},
                                        {{0, 1, 131'072}, {1, 1, 68'928}}});
  source.made.clear();
  read_part<std::int32_t>(source, {{0, 0, 0}, {2, 3, 30'000}}, dtype::int32);
  CHECK(source.made == std::vector<box>{{{0, 0, 0}, {1, 3, 30'000}}, {{1, 0, 0}, {1, 3, 30'000}}});
}
