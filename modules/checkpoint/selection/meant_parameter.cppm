// SPDX-License-Identifier: Apache-2.0
// Not exported: the parameter that the key of an optimizer's state may name.
module shardmesh.checkpoint:meant_parameter;

import shardmesh.std;

namespace shardmesh {

// A parameter name <p> that an optimizer's key may contain.
struct meant_parameter {
  std::string_view name;
  bool is_last = false;  // in Megatron's form `*.state.<name>.<p>`, not PyTorch's `*.state.<p>.<name>`
};

// Returns the names in PyTorch's form, the leftmost ".state." first, then those in Megatron's form. The names view
// `key`. Cost: O(key) per ".state.".
std::vector<meant_parameter> parameter_names(std::string_view key);

}  // namespace shardmesh
