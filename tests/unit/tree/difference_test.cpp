// SPDX-License-Identifier: Apache-2.0
// Tests the words for what differs, which reports of state dicts and of checkpoints share.
#include <catch2/catch_test_macros.hpp>
#include <string_view>
#include <vector>
import shardmesh.tree;

using namespace shardmesh;

TEST_CASE("each kind of difference has the name that JSON documents and Python show") {
  const std::vector<difference_kind> kinds{
      difference_kind::only_left,  difference_kind::only_right, difference_kind::kind,      difference_kind::dtype,
      difference_kind::shape,      difference_kind::values,     difference_kind::object,    difference_kind::layout,
      difference_kind::unreadable, difference_kind::placement,  difference_kind::properties};
  std::vector<std::string_view> names;
  for (const difference_kind kind : kinds) names.push_back(name(kind));
  CHECK(names == std::vector<std::string_view>{"only-left", "only-right", "kind", "dtype", "shape", "values", "object",
                                               "layout", "unreadable", "placement", "properties"});
}
