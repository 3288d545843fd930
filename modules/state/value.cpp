// SPDX-License-Identifier: Apache-2.0
module;
#include <array>
#include <string_view>
module shardmesh.state;

namespace shardmesh {

std::string_view name(value_kind kind) {
  constexpr auto names = std::to_array<std::string_view>(
      {"none", "bool", "int", "float", "str", "bytes", "object", "tensor", "sharded tensor", "dtensor"});
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace shardmesh
