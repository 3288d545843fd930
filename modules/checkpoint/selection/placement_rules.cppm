// SPDX-License-Identifier: Apache-2.0
// Chooses the placements of each tensor of a checkpoint: by rules, by a default, or, for optimizer state, by its
// parameter. The meaning of placements is in room layout.
export module shardmesh.checkpoint:placement_rules;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :key_pattern;

export namespace shardmesh {

/// A tensor's name and shape.
struct keyed_shape {
  std::string key;
  extents shape;
};

/// A rule that gives these placements to tensors whose key matches.
struct placement_rule {
  key_pattern pattern;
  std::vector<placement> placements;  // one per mesh dimension
  friend bool operator==(const placement_rule&, const placement_rule&) = default;
};

/// Parses "RE=S(0),R", split at the last '='.
/// \errors errc::invalid_argument with the text, also when RE is not a valid RE2 expression
result<placement_rule> parse_placement_rule(std::string_view text);
/// Parses several rules.
/// \errors those of the first text that is not a rule
result<std::vector<placement_rule>> parse_placement_rules(std::span<const std::string_view> texts);
result<std::vector<placement_rule>> parse_placement_rules(std::initializer_list<std::string_view> texts);

/// How `resolve_placements` treats tensors that no rule matches, and rules that match no tensor.
struct placement_options {
  std::vector<placement> default_placements = {};  // empty: R on every mesh dimension
  bool allow_unused = false;                       // accept rules that match nothing
  bool optimizer_follows = true;                   // optimizer state takes its parameter's placements
};

/// The placements of every tensor, in the order given, or every problem found.
struct placement_resolution {
  std::vector<std::vector<placement>> placements;  // tensor dimensions are not negative; empty when there are errors
  std::vector<std::string> notes;                  // one line each
  std::vector<error> errors;                       // one line each, at most one per rule and kind
  bool ok() const { return errors.empty(); }
};

/// Resolves the placements of all tensors. The first rule that matches a key decides. Optimizer state without a rule
/// follows its parameter: a key `*.state.<p>.<name>`, or Megatron's `*.state.<name>.<p>`, follows the tensor of the
/// same shape whose key is `<p>` or ends with ".<p>". If several such tensors disagree, the state gets the default,
/// with a note. All other tensors get the default. A 0-d tensor gets R on every mesh dimension, with a note. Another
/// note names the tensors that are replicated because they have neither a rule nor a default. Problems, all of them
/// errc::invalid_argument: a wrong number of placements, a rule that matches nothing, a dimension that tensors lack,
/// and segments that do not add up to the size of a dimension (both name the first twenty tensors, and count the rest).
/// Cost: O(keys * rules).
placement_resolution resolve_placements(std::span<const keyed_shape> tensors, const device_mesh& mesh,
                                        std::span<const placement_rule> rules, const placement_options& options = {});

/// Makes the layout of a checkpoint's tensor.
/// \errors errc::unsupported for a Partial placement; those of `layout::make`
result<layout> stored_layout(const device_mesh& mesh, std::vector<placement> placements, const extents& shape);

}  // namespace shardmesh
