// SPDX-License-Identifier: Apache-2.0
// Compares coverage with a count of holders per cell, on thousands of random layouts: without defects, with one of each
// kind, and with many. Also compares the code that only large or contrived inputs reach with all pairs.
#include <layout/cover_degrees.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <dice.hpp>
#include <indices.hpp>
#include <numeric>
#include <optional>
#include <random_seed.hpp>
#include <string>
#include <utility>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace {

struct sample {
  extents shape;
  std::vector<box> boxes;

  std::vector<std::int64_t> flat(bool sizes) const {
    std::vector<std::int64_t> all;
    for (const box& b : boxes) {
      const extents& part = sizes ? b.sizes : b.offsets;
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  std::vector<owner_id> owners() const {
    std::vector<owner_id> all(boxes.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

// --- random layouts --------------------------------------------------------------------------------------------------

sample guillotine(dice& d, std::int64_t rank, std::int64_t longest, std::int64_t cuts) {
  sample s;
  for (std::int64_t i = 0; i < rank; ++i) s.shape.push_back(1 + d.below(longest));
  s.boxes.push_back(box::whole(s.shape));
  for (; cuts > 0 && rank > 0; --cuts) {
    const std::size_t at = d.one_of(s.boxes.size()), dim = d.one_of(s.shape.rank());
    box low = s.boxes[at], high = low;
    low.sizes[dim] = d.below(low.sizes[dim] + 1);  // may be empty
    high.offsets[dim] += low.sizes[dim];
    high.sizes[dim] -= low.sizes[dim];
    s.boxes[at] = low;
    s.boxes.push_back(high);
  }
  std::shuffle(s.boxes.begin(), s.boxes.end(), d.engine());
  return s;
}

// Rows and columns of a rectangle, or slabs of a cuboid: each spans all dimensions but one.
sample slabs(dice& d, std::int64_t rank) {
  sample s;
  for (std::int64_t i = 0; i < rank; ++i) s.shape.push_back(20 + d.below(rank == 2 ? 40 : 10));
  for (std::size_t dim = 0; dim < s.shape.rank(); ++dim) {
    const std::int64_t step = 1 + d.below(2), width = 1 + d.below(step == 2 ? 2 : 1);
    if (d.below(3) == 0 && dim > 0) continue;
    for (std::int64_t at = 0; at + width <= s.shape[dim]; at += step) {
      box b = box::whole(s.shape);
      b.offsets[dim] = at, b.sizes[dim] = width;
      if (d.below(20) == 0) b.sizes[d.one_of(s.shape.rank())] /= 2;
      if (d.below(30) != 0) s.boxes.push_back(b);
    }
  }
  std::shuffle(s.boxes.begin(), s.boxes.end(), d.engine());
  return s;
}

sample anything(dice& d, std::int64_t rank) {
  sample s;
  for (std::int64_t i = 0; i < rank; ++i) s.shape.push_back(1 + d.below(12));
  for (std::int64_t count = d.below(30); count > 0; --count) {
    box b = box::whole(s.shape);
    for (std::size_t dim = 0; dim < s.shape.rank(); ++dim) {
      b.offsets[dim] = d.below(s.shape[dim] + 1);
      b.sizes[dim] = d.below(std::min<std::int64_t>(s.shape[dim] - b.offsets[dim], 1 + d.below(8)) + 1);
    }
    s.boxes.push_back(b);
  }
  return s;
}

// Damages one box, in one of the ways in which metadata goes wrong.
void damage(sample& s, dice& d) {
  if (s.boxes.empty() || s.shape.empty()) return;
  const std::size_t at = d.one_of(s.boxes.size()), dim = d.one_of(s.shape.rank());
  box& b = s.boxes[at];
  switch (d.below(7)) {
    case 0:
      s.boxes.erase(s.boxes.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      s.boxes.push_back(box(b));
      break;
    case 2:
      b.offsets[dim] += 1 - 2 * d.below(2);
      break;
    case 3:
      b.sizes[dim] += 1;
      break;
    case 4:
      b.sizes[dim] -= 1;
      break;
    case 5:
      b.offsets = s.boxes[d.one_of(s.boxes.size())].offsets;
      break;
    case 6:
      b.sizes = s.boxes[d.one_of(s.boxes.size())].sizes;
      break;
  }
}

// --- the model -------------------------------------------------------------------------------------------------------

bool is_within(const box& b, const extents& shape) {
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (b.offsets[d] < 0 || b.sizes[d] < 0 || b.end(d) > shape[d]) return false;
  return true;
}

box clipped(const box& b, const extents& shape) {
  box c = b;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const std::int64_t begin = std::clamp<std::int64_t>(b.offsets[d], 0, shape[d]);
    const std::int64_t end = std::clamp<std::int64_t>(b.end(d), begin, shape[d]);
    c.offsets[d] = begin;
    c.sizes[d] = b.sizes[d] < 0 ? 0 : end - begin;
  }
  return c;
}

std::vector<int> counts(const extents& shape, const std::vector<box>& boxes) {
  std::vector<int> held(static_cast<std::size_t>(box::whole(shape).volume()), 0);
  for (const box& b : boxes)
    indices::for_each_in(
        b, [&](const extents& cell) { ++held[static_cast<std::size_t>(indices::row_major(cell, shape))]; });
  return held;
}

using pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

// The pairs that share cells. Where equal boxes are replicas, only the first of each counts.
pairs shared(std::vector<box> boxes, equal_boxes equal) {
  if (equal == equal_boxes::replicas)
    for (std::size_t i = boxes.size(); i-- > 0 && boxes[i].rank() > 0;)
      if (std::find(boxes.begin(), boxes.begin() + static_cast<std::ptrdiff_t>(i), boxes[i]) !=
          boxes.begin() + static_cast<std::ptrdiff_t>(i))
        boxes[i].sizes = extents::filled(boxes[i].rank(), 0);
  pairs all;  // the boxes of scalars are always replicas
  for (std::size_t i = 0; i < boxes.size() && boxes[i].rank() > 0; ++i)
    for (std::size_t j = i + 1; j < boxes.size(); ++j)
      if (intersect(boxes[i], boxes[j])) all.emplace_back(i, j);
  return all;
}

pairs named_overlaps(const cover_report& report) {
  pairs all;
  for (const cover_problem& p : report.problems)
    if (p.kind == cover_kind::overlap) all.emplace_back(p.first_index, p.second_index);
  return all;
}

bool check_against_model(const sample& s, equal_boxes equal) {
  const auto offsets = s.flat(false), sizes = s.flat(true);
  const auto owners = s.owners();
  const auto report = check_boxes(s.shape, offsets, sizes, owners, 1'000'000, owner_space::ranks, equal);
  REQUIRE(report.total_is_exact);
  REQUIRE(report.total == static_cast<std::int64_t>(report.problems.size()));

  std::vector<std::int64_t> outside, named_outside;
  std::vector<box> inside, gaps;
  for (std::size_t i = 0; i < s.boxes.size(); ++i) {
    if (!is_within(s.boxes[i], s.shape)) outside.push_back(static_cast<std::int64_t>(i));
    inside.push_back(clipped(s.boxes[i], s.shape));
  }
  for (const cover_problem& p : report.problems) {
    if (p.kind == cover_kind::out_of_bounds) named_outside.push_back(p.first_index);
    if (p.kind == cover_kind::gap) gaps.push_back(p.where);
    if (p.kind == cover_kind::overlap)
      REQUIRE(p.where == intersect(inside[static_cast<std::size_t>(p.first_index)],
                                   inside[static_cast<std::size_t>(p.second_index)]));
  }
  REQUIRE(named_outside == outside);
  REQUIRE(named_overlaps(report) == shared(inside, equal));
  REQUIRE(std::is_sorted(gaps.begin(), gaps.end()));
  const auto held = counts(s.shape, inside), in_gaps = counts(s.shape, gaps);
  for (std::size_t cell = 0; cell < held.size(); ++cell)
    if (in_gaps[cell] != (held[cell] == 0 ? 1 : 0)) FAIL("cell " << cell << " is in " << in_gaps[cell] << " gaps");

  // A smaller limit names the first of these problems.
  const auto few = check_boxes(s.shape, offsets, sizes, owners, 2, owner_space::ranks, equal);
  REQUIRE(few.total == report.total);
  REQUIRE(std::equal(few.problems.begin(), few.problems.end(), report.problems.begin()));
  REQUIRE(few.problems.size() == std::min<std::size_t>(2, report.problems.size()));

  // Overlaps alone, for the boxes as given, moved away from the origin.
  std::vector<std::int64_t> moved = offsets;
  for (std::int64_t& o : moved) o += 1000;
  sample shifted = s;
  for (box& b : shifted.boxes)
    if (std::any_of(b.sizes.begin(), b.sizes.end(), [](std::int64_t n) { return n < 0; }))
      b.sizes = extents::filled(b.rank(), 0);
  const auto alone = check_overlaps(s.shape.rank(), moved, sizes, owners, 1'000'000);
  REQUIRE(alone.total_is_exact);
  REQUIRE(named_overlaps(alone) == shared(shifted.boxes, equal_boxes::overlap));
  return report.ok();
}

void check_both(const sample& s, int& valid) {
  valid += check_against_model(s, equal_boxes::replicas) ? 1 : 0;
  check_against_model(s, equal_boxes::overlap);
}

}  // namespace

TEST_CASE("random layouts, whole and with defects, are judged as a count of every cell does") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice d(seed);
  int valid = 0;
  const auto rounds = static_cast<int>(random_seed::rounds(4000));
  for (int round = 0; round < rounds; ++round) {
    INFO("round " << round);
    sample s = guillotine(d, d.below(5), 7, d.below(12));
    if (round % 4 != 0) damage(s, d);
    for (std::int64_t more = round % 4 == 3 ? d.below(6) : 0; more > 0; --more) damage(s, d);
    if (s.shape.empty() && round % 2 == 1) s.boxes.clear();
    if (s.shape.empty() && !s.boxes.empty()) s.boxes.resize(1 + d.one_of(3));
    check_both(s, valid);
  }
  CHECK(valid > rounds / 4);
  CHECK(valid < rounds / 4 * 3);
}

TEST_CASE("random boxes anywhere are judged as a count of every cell does") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice d(seed);
  int valid = 0;
  for (std::uint64_t round = random_seed::rounds(1000); round > 0; --round) {
    INFO("round " << round);
    check_both(anything(d, 1 + d.below(3)), valid);
  }
}

TEST_CASE("rows across columns are judged as a count of every cell does") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice d(seed);
  int valid = 0;
  for (std::uint64_t round = random_seed::rounds(80); round > 0; --round) {
    INFO("round " << round);
    sample s = slabs(d, 2 + d.below(2));
    if (round % 2 == 1) damage(s, d);
    check_both(s, valid);
  }
}

TEST_CASE("larger cuts with a few defects are judged as a count of every cell does") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice d(seed);
  int valid = 0;
  for (std::uint64_t round = random_seed::rounds(30, 5); round > 0; --round) {
    INFO("round " << round);
    sample s = guillotine(d, 1 + d.below(3), 40, 700);
    for (std::int64_t more = d.below(4); more > 0; --more) damage(s, d);
    check_both(s, valid);
  }
}

TEST_CASE("counting who shares cells with how many agrees with looking at all pairs") {
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  dice d(seed);
  for (std::uint64_t round = random_seed::rounds(150); round > 0; --round) {
    INFO("round " << round);
    const std::size_t dims = 1 + d.one_of(4), count = 1 + d.one_of(round % 10 == 0 ? 1500 : 150);
    const std::int64_t range = 1 + d.below(round % 3 == 0 ? 12 : 200), most = 1 + d.below(range);
    std::vector<covering::interval> boxes;
    for (std::size_t i = 0; i < count * dims; ++i) {
      const std::int64_t begin = d.below(range) - range / 2;
      boxes.push_back({begin, begin + 1 + d.below(most)});
    }
    std::vector<std::int64_t> expected(count, 0);
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < count; ++j) {
        bool meet = i != j;
        for (std::size_t k = 0; k < dims; ++k)
          meet = meet && boxes[i * dims + k].begin < boxes[j * dims + k].end &&
                 boxes[j * dims + k].begin < boxes[i * dims + k].end;
        expected[i] += meet ? 1 : 0;
      }
    covering::degree_counter counter(dims, boxes);
    counter.run(1'000'000'000);
    REQUIRE(counter.is_complete());
    REQUIRE(counter.degrees() == expected);
    REQUIRE(counter.pairs() == std::accumulate(expected.begin(), expected.end(), std::int64_t{0}) / 2);
  }
}
