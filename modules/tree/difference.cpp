// SPDX-License-Identifier: Apache-2.0
module;
#include <string_view>
module shardmesh.tree;

namespace shardmesh {

std::string_view name(difference_kind kind) {
  switch (kind) {
    case difference_kind::only_left:
      return "only-left";
    case difference_kind::only_right:
      return "only-right";
    case difference_kind::kind:
      return "kind";
    case difference_kind::dtype:
      return "dtype";
    case difference_kind::shape:
      return "shape";
    case difference_kind::values:
      return "values";
    case difference_kind::object:
      return "object";
    case difference_kind::layout:
      return "layout";
    case difference_kind::unreadable:
      return "unreadable";
    case difference_kind::placement:
      return "placement";
    case difference_kind::properties:
      return "properties";
  }
  return "unknown";
}

}  // namespace shardmesh
