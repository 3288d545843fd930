// SPDX-License-Identifier: Apache-2.0
// Not exported: the kinds of optimizer state, such as all "exp_avg" of an optimizer.
module shardmesh.mapping:state_kind;

import shardmesh.std;

namespace shardmesh {

// The entries of one kind of state. Keys are `before` NAME `after`.
struct state_kind {
  bool is_tensor = true;
  std::string_view before, after, prefix;  // prefix: of the parameters' keys, before NAME

  // "exp_avg" of "optim.state.NAME.exp_avg" and of "optimizer.state.exp_avg.NAME".
  std::string_view name() const;
  // A copy of the parameter in higher precision. Its values are those of the parameter.
  bool is_master() const;
  friend bool operator<(const state_kind& a, const state_kind& b);
};

// Returns whether one component of the key is `name`.
bool has_component(std::string_view key, std::string_view name);

}  // namespace shardmesh
