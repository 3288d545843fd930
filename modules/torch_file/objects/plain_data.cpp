// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <vector>
module shardmesh.torch_file;

import :plain_data;

namespace shardmesh::torch_file {

bool may_refer(const pickle::value& value) {
  constexpr std::size_t most_parts = 1000;
  std::vector<pickle::value> pending{value};
  for (std::size_t visited = 0; !pending.empty(); ++visited) {
    const pickle::value at = pending.back();
    pending.pop_back();
    switch (at.kind()) {
      case pickle::kind::boolean:
      case pickle::kind::integer:
      case pickle::kind::floating:
      case pickle::kind::text:
      case pickle::kind::bytes:
        break;
      case pickle::kind::list:
      case pickle::kind::tuple:
        if (visited + pending.size() + at.size() > most_parts) return true;
        for (const pickle::value part : at.items()) pending.push_back(part);
        break;
      case pickle::kind::dict:
        if (visited + pending.size() + 2 * at.size() > most_parts) return true;
        for (const pickle::pair pair : at.pairs()) pending.push_back(pair.key), pending.push_back(pair.value);
        break;
      default:
        if (!at.is_none()) return true;
    }
  }
  return false;
}

}  // namespace shardmesh::torch_file
