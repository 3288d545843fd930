// SPDX-License-Identifier: Apache-2.0
// Measures coverage on the layouts that make naive checks quadratic, with and without defects, and on contrived ones.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cpu_time.hpp>
#include <cstdint>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <vector>
import shardmesh.layout;

using namespace shardmesh;

namespace {

struct flat {
  extents shape;
  std::vector<std::int64_t> offsets, sizes;
  std::vector<owner_id> owners;
  void add(std::int64_t r0, std::int64_t c0, std::int64_t rows, std::int64_t columns) {
    offsets.insert(offsets.end(), {r0, c0});
    sizes.insert(sizes.end(), {rows, columns});
    owners.push_back(static_cast<owner_id>(owners.size()));
  }
};

flat grid(std::int64_t rows, std::int64_t columns) {
  flat f;
  f.shape = {rows * 3, columns * 5};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) f.add(r * 3, c * 5, 3, 5);
  return f;
}

flat guillotine(std::size_t count) {
  std::mt19937_64 random(7);
  flat f;
  f.shape = {1 << 20, 1 << 20};
  std::vector<box> boxes{box::whole(f.shape)};
  for (std::size_t at = 0; boxes.size() < count; at = (at + 1) % boxes.size()) {
    const std::size_t d = random() % 2;
    if (boxes[at].sizes[d] < 2) continue;
    box high = boxes[at];
    const auto cut = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(boxes[at].sizes[d] - 1));
    boxes[at].sizes[d] = cut;
    high.offsets[d] += cut;
    high.sizes[d] -= cut;
    boxes.push_back(high);
  }
  for (const box& b : boxes) f.add(b.offsets[0], b.offsets[1], b.sizes[0], b.sizes[1]);
  return f;
}

double seconds(const flat& f, cover_report& report) {
  const double start = cpu_seconds();
  report = check_boxes(f.shape, f.offsets, f.sizes, f.owners);
  return cpu_seconds() - start;
}

}  // namespace

TEST_CASE("a million boxes are checked in about the time of reading them, and a defect costs little more") {
  for (flat f : {grid(1'000'000, 1), grid(1, 1'000'000), grid(1000, 1000), grid(2, 500'000), grid(500'000, 2),
                 guillotine(1'000'000)}) {
    cover_report report;
    const double valid = seconds(f, report);
    CHECK(report.ok());
    const std::size_t missing = 777'777;
    const box gap{{f.offsets[2 * missing], f.offsets[2 * missing + 1]},
                  {f.sizes[2 * missing], f.sizes[2 * missing + 1]}};
    f.sizes[2 * missing] = 0;
    const double with_gap = seconds(f, report);
    REQUIRE(report.total == 1);
    CHECK(report.problems[0].where == gap);
    f.sizes[2 * missing] = gap.sizes[0];
    f.offsets[0] = f.offsets[2];  // box 0 moves onto box 1
    f.offsets[1] = f.offsets[3];
    f.sizes[0] = f.sizes[2] - 1;
    f.sizes[1] = f.sizes[3];
    const double with_overlap = seconds(f, report);
    REQUIRE(!report.ok());
    CHECK(report.problems[0].first_index == 0);
    CHECK(std::any_of(report.problems.begin(), report.problems.end(),
                      [](const cover_problem& p) { return p.kind == cover_kind::overlap && p.second_index == 1; }));
    WARN("valid " << valid << " s, gap " << with_gap << " s, overlap " << with_overlap << " s");
    CHECK(valid < 3);  // generous: other builds share the machine
    CHECK(with_gap < 6);
    CHECK(with_overlap < 6);
  }
}

namespace {

flat make(const extents& shape, const std::vector<box>& boxes) {
  flat f;
  f.shape = shape;
  for (const box& b : boxes) {
    f.offsets.insert(f.offsets.end(), b.offsets.begin(), b.offsets.end());
    f.sizes.insert(f.sizes.end(), b.sizes.begin(), b.sizes.end());
    f.owners.push_back(static_cast<owner_id>(f.owners.size()));
  }
  return f;
}

// The ordinary run has half as many boxes, in half the time.
const bool is_long = random_seed::runs_are_long();
const std::int64_t most_boxes = is_long ? 100'000 : 50'000;
const double most_seconds = is_long ? 20 : 10;

// Checks coverage and overlaps, which must be quick and agree on the number of overlapping pairs.
void check(const std::string& what, const flat& f, std::int64_t pairs, std::int64_t gaps) {
  INFO(what);
  const double start = cpu_seconds();
  const auto report = check_boxes(f.shape, f.offsets, f.sizes, f.owners);
  const auto alone = check_overlaps(f.shape.rank(), f.offsets, f.sizes, f.owners);
  const double took = cpu_seconds() - start;
  CHECK(alone.total == pairs);
  CHECK(alone.total_is_exact);
  if (gaps >= 0) {
    CHECK(report.total == pairs + gaps);
    CHECK(report.total_is_exact);
  }
  CHECK(report.problems.size() == static_cast<std::size_t>(std::min<std::int64_t>(100, report.total)));
  WARN(what << ": " << f.owners.size() << " boxes, " << pairs << " overlaps: " << took << " s");
  CHECK(took < most_seconds);
}

}  // namespace

TEST_CASE("contrived layouts are no trouble: millions of overlaps are counted, not looked at") {
  const std::int64_t n = most_boxes;
  const std::int64_t all_pairs = n * (n - 1) / 2;
  std::vector<box> boxes;
  for (std::int64_t i = 0; i < n; ++i) boxes.push_back({{i, i}, {2 * n - 2 * i, 2 * n - 2 * i}});
  check("nested rectangles", make({2 * n, 2 * n}, boxes), all_pairs, 0);
  boxes.clear();
  for (std::int64_t i = 0; i < n; ++i) boxes.push_back({{i}, {2 * n - 2 * i}});
  check("nested intervals", make({2 * n}, boxes), all_pairs, 0);
  boxes.clear();
  for (std::int64_t i = 0; i < n / 4; ++i) boxes.push_back({{i, i, i}, {2 * n - 2 * i, 2 * n - 2 * i, 2 * n - 2 * i}});
  check("nested cuboids", make({2 * n, 2 * n, 2 * n}, boxes), n / 4 * (n / 4 - 1) / 2, 0);
  boxes.clear();
  for (std::int64_t i = 0; i < n / 2; ++i) boxes.push_back({{i, 0}, {1, n / 2}});
  for (std::int64_t i = 0; i < n / 2; ++i) boxes.push_back({{0, i}, {n / 2, 1}});
  check("rows across columns", make({n / 2, n / 2}, boxes), n / 2 * (n / 2), 0);
  boxes.clear();
  for (std::int64_t i = 0; i < n / 2; ++i) boxes.push_back({{2 * i, 0}, {1, n}});
  for (std::int64_t i = 0; i < n / 2; ++i) boxes.push_back({{0, 2 * i}, {n, 1}});
  check("a grid of thin lines", make({n, n}, boxes), n / 2 * (n / 2), -1);
}

TEST_CASE("contrived layouts without overlaps are no trouble either") {
  const std::int64_t n = most_boxes;
  std::vector<box> boxes;  // nested angles: an index of bounding boxes would visit all of them
  for (std::int64_t i = 0; i < n / 2; ++i) {
    boxes.push_back({{i, i}, {1, n / 2 - i}});
    if (i + 1 < n / 2) boxes.push_back({{i + 1, i}, {n / 2 - i - 1, 1}});
  }
  check("angles", make({n / 2, n / 2}, boxes), 0, 0);
  for (std::size_t i = 0; i < boxes.size(); i += 10) boxes[i].sizes[0] = 0;
  check("angles with gaps", make({n / 2, n / 2}, boxes), 0, n / 10);
  boxes.clear();
  const std::int64_t k = is_long ? 100 : 60;  // rods in three directions that pass each other
  for (std::int64_t a = 0; a < k; ++a)
    for (std::int64_t b = 0; b < k; ++b) {
      boxes.push_back({{0, 2 * a, 2 * b + 1}, {2 * k, 1, 1}});
      boxes.push_back({{2 * a + 1, 0, 2 * b}, {1, 2 * k, 1}});
      boxes.push_back({{2 * a, 2 * b + 1, 0}, {1, 1, 2 * k}});
    }
  check("rods", make({2 * k, 2 * k, 2 * k}, boxes), 0, -1);
  boxes[1].sizes[2] = 2;  // crosses rods of the third direction
  const auto touched = make({2 * k, 2 * k, 2 * k}, boxes);
  std::int64_t pairs = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) pairs += i != 1 && intersect(boxes[i], boxes[1]) ? 1 : 0;
  REQUIRE(pairs > 0);
  check("rods, one too thick", touched, pairs, -1);
}
