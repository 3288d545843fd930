// SPDX-License-Identifier: Apache-2.0
// Not exported: the relations of a mapping's rules for the shapes of a checkpoint.
module shardmesh.mapping:rule_relations;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :binding;
import :binding_problems;
import :capture_values;
import :index_relation;
import :index_rule;
import :model_sizes;
import :rule_captures;
import :rule_sources;
import :size_expression;

namespace shardmesh {

class rule_relations {
 public:
  // The arguments must outlive this. Relations are added to `made`.
  rule_relations(const catalog& source, const model_sizes& model, const missing_sizes& missing,
                 const binding_problems& problems, bound_mapping& made)
      : source_(source), model_(model), missing_(missing), problems_(problems), made_(made) {}

  // Forgets the relations of the rule before.
  void begin_rule();
  // Returns the relation for these shapes, which is usually that of the rule's previous instance.
  // \errors errc::shape_mismatch; those of `infer_sizes` and `relate`
  result<std::size_t> relation_of(std::size_t rule, const rule_captures& captures, const instance_sources& found,
                                  const capture_values& values);

 private:
  result<index_relation> relate_shapes(const rule_captures& captures, const instance_sources& found,
                                       named_sizes sizes) const;
  std::string key_of(const instance_sources& found, std::size_t tensor) const;
  std::string hint_of_sizes(const index_tensor& tensor, const named_sizes& values) const;

  const catalog& source_;
  const model_sizes& model_;
  const missing_sizes& missing_;
  const binding_problems& problems_;
  bound_mapping& made_;
  std::map<std::vector<extents>, std::size_t> known_;  // of the current rule, by shapes
};

}  // namespace shardmesh
