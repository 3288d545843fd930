// SPDX-License-Identifier: Apache-2.0
// Not exported: the tensors of the checkpoint that one instance of a rule needs.
module shardmesh.mapping:rule_sources;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;
import :binding_problems;
import :capture_values;
import :rule_captures;
import :rules;

namespace shardmesh {

// The source tensors of an instance, and their common properties.
struct instance_sources {
  bound_instance instance;
  std::vector<extents> shapes;  // per left tensor, with the stacked dimensions first
  dtype type = dtype::undefined;
  std::size_t missing = 0;
  bool is_consistent = true;
};

// Finds the sources of a rule for the present values of its captures. Adds a problem for each tensor that is missing,
// or that differs from the others in shape or dtype.
result<instance_sources> find_sources(const mapping_rule& rule, const rule_captures& captures, const catalog& source,
                                      capture_values& values, binding_problems& problems);

}  // namespace shardmesh
