// SPDX-License-Identifier: Apache-2.0
module;
#include <utility>
#include <vector>
module shardmesh.core;

namespace shardmesh::detail {

void problem_list::add(error e) {
  if (named.size() <= error::max_others)
    named.push_back(std::move(e));
  else
    ++more;
}

result<void> problem_list::outcome() && {
  if (empty()) return {};
  return fail_all(std::move(named), more);
}

}  // namespace shardmesh::detail
