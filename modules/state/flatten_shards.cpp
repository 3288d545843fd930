// SPDX-License-Identifier: Apache-2.0
module;
#include <optional>
#include <string>
#include <utility>

#include <shardmesh/try.hpp>
module shardmesh.state;

namespace shardmesh::detail {

result<flat_nest> flatten_exactly(const nest& members, const path& where, const nested_options& options,
                                  const known_insides* known) {
  const std::string key = known ? to_string(where) : std::string();
  const auto look_up = [&](const nest_position& at, const shard_metadata& shard) -> result<inner_answer> {
    inner_answer answer;
    if (known) answer = known->find(key, at, shard);
    if (answer.kind != inner_answer::what::unknown || !options.inner_metadata) return answer;
    const auto inner = options.inner_metadata(where, shard);
    if (!inner) return answer;
    SHARDMESH_TRY(auto shards, inside_of(shard, *inner));
    return inner_answer{inner_answer::what::inner, std::move(shards), true};
  };
  return flatten_nest(members, look_up, options.group);
}

}  // namespace shardmesh::detail
