// SPDX-License-Identifier: Apache-2.0
// Which placements each tensor of a checkpoint gets: rules, defaults, and optimizer state that follows its parameter.
// Not here: what placements mean (layout).
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

/// Tensors whose key matches get these placements.
struct placement_rule {
  key_pattern pattern;
  std::vector<placement> placements;  // one per mesh dimension
  friend bool operator==(const placement_rule&, const placement_rule&) = default;
};

/// "RE=S(0),R", split at the last '='. \errors errc::invalid_argument with the text (also for a pattern that is not
/// RE2's)
result<placement_rule> parse_placement_rule(std::string_view text);
/// Several of them. \errors those of the first that is none
result<std::vector<placement_rule>> parse_placement_rules(std::span<const std::string_view> texts);
result<std::vector<placement_rule>> parse_placement_rules(std::initializer_list<std::string_view> texts);

/// What `resolve_placements` does about tensors that no rule matches, and about rules that match no tensor.
struct placement_options {
  std::vector<placement> default_placements = {};  // empty: R on every mesh dimension
  bool allow_unused = false;                       // rules that match nothing are no error
  bool optimizer_follow = true;                    // optimizer state takes its parameter's placements
};

/// Placements of every tensor, in the order given, or every problem found.
struct placement_resolution {
  std::vector<std::vector<placement>> placements;  // tensor dimensions not negative; empty when there are errors
  std::vector<std::string> notes;                  // one line each
  std::vector<error> errors;                       // one line each, at most one per rule and kind
  bool ok() const { return errors.empty(); }
};

/// The first rule that matches a key decides; keys without one: optimizer state `*.state.<p>.<name>`, or Megatron's
/// `*.state.<name>.<p>`, whose shape equals that of the parameter `<p>` (a key that is `<p>` or ends with ".<p>"; all
/// such keys of that shape must agree) follows it, others get the default. A 0-d tensor gets R on every mesh dimension,
/// with a note. Another note names the tensors that are replicated because there is neither a rule nor a default for
/// them. Problems, all of them errc::invalid_argument: a number of placements, a rule that matches nothing, a rule's
/// dimension that does not exist in tensors (the first twenty named, the rest counted).
/// Cost: O(keys * rules).
placement_resolution resolve_placements(std::span<const keyed_shape> tensors, const device_mesh& mesh,
                                        std::span<const placement_rule> rules, const placement_options& options = {});

/// The layout of a tensor of a checkpoint. \errors errc::unsupported for a Partial placement; those of `layout::make`
result<layout> stored_layout(const device_mesh& mesh, std::vector<placement> placements, const extents& shape);

}  // namespace shardmesh
