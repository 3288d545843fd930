// SPDX-License-Identifier: Apache-2.0
// Compares pictures with whole files in tests/data/pictures, which a person has inspected. SHARDMESH_WRITE_PICTURES=1
// rewrites them: then inspect them again.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
import shardmesh.draw;

using namespace shardmesh;

namespace {

distribution placed(const char* mesh, const char* placements, const extents& shape) {
  return distribute(layout::make(parse_mesh(mesh).value(), parse_placements(placements).value(), shape).value())
      .value();
}

// The chunks of a checkpoint: one stored in two files, one that overlaps another, and a gap.
distribution chunks() {
  distribution_builder made({6, 8}, owner_space::items);
  const extents corner{0, 0}, right{0, 4}, below{3, 0}, within{2, 6};
  made.add(0, 0, corner, extents{3, 4});
  made.add(7, 1, corner, extents{3, 4});
  made.add(1, 2, right, extents{3, 4});
  made.add(2, 3, below, extents{3, 2});
  made.add(12, 4, within, extents{2, 2});
  return made.finish().value();
}

void check_picture(const std::string& name, const std::string& picture) {
  const std::string path = std::string(SHARDMESH_TEST_DATA) + "/pictures/" + name;
  if (const char* wish = std::getenv("SHARDMESH_WRITE_PICTURES"); wish != nullptr && std::string(wish) == "1")
    std::ofstream(path, std::ios::binary) << picture;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream expected;
  expected << file.rdbuf();
  INFO(path);
  CHECK(picture == expected.str());
}

void check_layout(const std::string& name, const distribution& d) {
  check_picture(name + ".txt", draw_layout(d));
  check_picture(name + ".ansi", draw_layout(d, {.color = true}));
  check_picture(name + ".svg", svg_layout(d));
}

void check_plan(const std::string& name, const transfer_plan& p) {
  check_picture(name + ".txt", draw_plan(p));
  check_picture(name + ".ansi", draw_plan(p, {.color = true}));
  check_picture(name + ".svg", svg_plan(p));
}

}  // namespace

TEST_CASE("layouts, chunks and plans are drawn as the files of tests/data/pictures are") {
  check_layout("replicas_of_64_ranks", placed("8,8", "R,S(0)", {16, 10}));
  check_layout("slices", placed("2,2,2", "S(0),S(1),S(2)", {2, 5, 7}));
  check_layout("chunks", chunks());
  check_plan(
      "rows_to_columns",
      plan({{placed("3", "S(0)", {12, 12}), placed("3", "S(1)", {12, 12}), dtype::float32, dtype::float32}}).value());
  check_plan(
      "plan_of_64_ranks",
      plan({{placed("64", "S(0)", {64, 64}), placed("8,8", "S(0),S(1)", {64, 64}), dtype::float32, dtype::float32}})
          .value());
}
