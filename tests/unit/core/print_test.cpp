// SPDX-License-Identifier: Apache-2.0
// Tests printing to streams.
#include <catch2/catch_test_macros.hpp>
#include <sstream>
#include <string>
import shardmesh.core;

TEST_CASE("everything with a spelling prints it to a stream") {
  std::ostringstream out;
  out << shardmesh::extents{3, 4} << ' ' << shardmesh::box{{1, 0}, {2, 8}} << ' '
      << shardmesh::device{shardmesh::device_type::cuda, 1} << ' '
      << shardmesh::fail(shardmesh::errc::gap, "rows are held by no rank").with_key("w");
  CHECK(out.str() == "[3, 4] [1:3, 0:8) cuda:1 w: rows are held by no rank");
}
