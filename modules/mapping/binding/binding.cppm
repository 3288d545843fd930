// SPDX-License-Identifier: Apache-2.0
// A mapping that is bound to a checkpoint: the sources of each tensor, and the proof that nothing is left out.
export module shardmesh.mapping:binding;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :index_relation;
import :model_sizes;
import :rules;

export namespace shardmesh {

/// A relation of a rule. A stacked tensor has a leading dimension for each capture in its name, and a tensor in the
/// checkpoint for each index of these dimensions.
struct bound_relation {
  std::size_t rule = 0;
  index_relation relation;                               // without pieces for a rename
  std::vector<std::size_t> left_stacked, right_stacked;  // leading dimensions per tensor
};

/// The way in which the targets of an instance follow from its sources.
enum class bound_form : std::uint8_t {
  rule,      // by the rule: its index expression, then its operations on values
  elements,  // by the index expression alone: optimizer state with the shape of its parameter
  scalar,    // each target equals all sources, which must be equal: the step of an optimizer
};

/// One instance of a rule: its relation, and the checkpoint's tensors. Optimizer state of the tensors makes further
/// instances with the same relation, one for each kind of state, such as "exp_avg".
struct bound_instance {
  std::size_t relation = 0;
  /// Indices of the checkpoint's tensors: those of the first left tensor, then those of the second, and so on. The
  /// members of a stacked tensor are in row-major order of its captures.
  std::vector<std::size_t> sources;
  std::vector<std::size_t> first_source;  // per left tensor: index into `sources`
  bound_form form = bound_form::rule;
};

/// A tensor that the mapping makes.
struct bound_tensor {
  std::string key;
  dtype type = dtype::undefined;
  extents shape;
  std::size_t instance = 0;
  std::size_t tensor = 0;  // of the relation's right side
  extents stacked;         // its index in the leading dimensions that stand for captures
};

/// An object that follows the parameters of an optimizer, such as the learning rate of one parameter.
struct bound_object {
  std::string key;
  std::vector<std::size_t> sources;  // objects of the checkpoint, which must be equal
};

/// An object of the checkpoint that lists the parameters of an optimizer: "optim.param_groups.0.params". Its names
/// become those of the targets.
struct bound_list {
  /// The texts that precede the names of the list in the keys of its parameters, and in those of the targets.
  struct prefix {
    std::string of_sources, of_targets;
  };
  std::size_t object = 0;
  std::vector<prefix> prefixes;
};

/// A source tensor of which no element is used, and the reason: it is ignored, tied, or only filler of a rule.
struct unused_tensor {
  std::size_t source = 0;
  std::string reason;
  std::optional<std::size_t> same_as;  // a tied tensor's partner
};

/// A mapping, bound. Every tensor of the checkpoint is in exactly one instance, in `unused`, or in `kept`. The one
/// exception is a tensor that is only filler: it is in an instance and in `unused`.
struct bound_mapping {
  mapping_rules mapping;
  std::vector<bound_relation> relations;
  std::vector<bound_instance> instances;
  std::vector<bound_tensor> tensors;  // in the order of their instances
  std::vector<unused_tensor> unused;
  std::vector<std::size_t> kept;      // tensors of an optimizer that belong to no parameter: unchanged
  std::vector<bound_object> objects;  // other objects of the checkpoint are unchanged
  std::vector<bound_list> lists;
  std::vector<std::size_t> unused_objects;  // of parameters that are not used
  std::int64_t filled_elements = 0;         // of targets: zeros
  std::int64_t dropped_elements = 0;        // of sources: filler
  std::int64_t renamed_tensors = 0;         // of targets: no computation
  std::int64_t followed_entries = 0;        // of an optimizer's state in the checkpoint, which follow their parameters

  const mapping_rule& rule_of(const bound_instance& instance) const {
    return mapping.rules[relations[instance.relation].rule];
  }
  /// Returns whether the targets of the instance are its sources under other names.
  bool renames(const bound_instance& instance) const;
  /// Returns the tensors that an instance makes.
  std::span<const bound_tensor> targets_of(std::size_t instance) const;
};

/// Binds a mapping to the tensors of a checkpoint, and proves that it is complete: every tensor is used by one rule, or
/// ignored or tied by name; every target is made once; and the shapes agree with the sizes. Optimizer state that names
/// its parameter (`state_names` of room checkpoint) follows the parameter, unless a rule uses it.
/// \errors those of `infer_sizes` and `relate`; errc::missing_key for a tensor that a rule needs, and for a tensor that
///         no rule uses; errc::duplicate_key for a tensor that is used or made twice; errc::shape_mismatch;
///         errc::dtype_mismatch; errc::unsupported for optimizer state that cannot follow its parameter. All problems
///         are reported; each names the key and the rule
/// Cost: O(tensors); the sizes of a rule are computed once for all tensors of equal shapes.
result<bound_mapping> bind_mapping(const mapping_rules& mapping, const catalog& source, const model_sizes& sizes);

}  // namespace shardmesh
