// SPDX-License-Identifier: Apache-2.0
// A mapping as a value: the rules that relate the tensors of two conventions, and its text form.
export module shardmesh.mapping:rules;

import shardmesh.std;
import shardmesh.core;
import :index_rule;
import :name_template;
import :size_expression;
import :value_step;

export namespace shardmesh {

/// A tensor of a rule: the alias in the rule's expression, and the name in checkpoints.
struct named_tensor {
  std::string alias;
  name_template name;
};

/// Relates tensors of the left convention to tensors of the right one. A capture of names on both sides makes one
/// instance of the rule for each of its values. A capture of one side only is a dimension of the other, such as stacked
/// experts: a factor of that side in the expression.
struct mapping_rule {
  std::string name;  // for messages
  std::vector<named_tensor> left, right;
  index_rule index;                          // a rename if empty
  std::vector<value_step> values;            // from left to right, in order
  std::optional<size_expression> condition;  // the rule applies where this is not 0; it may use captures
  /// Skips an instance if the checkpoint has none of its source tensors, such as biases.
  bool is_optional = false;
  int line = 0;  // of the file; 0: not from a file
};

/// Tensors of one side that have no counterpart on the other.
struct ignored_tensors {
  name_template name;
  std::string reason;
  std::optional<size_expression> condition;
  bool is_left = true;
  int line = 0;
};

/// A tensor that may be stored beside another one of equal contents on the same side: tied embeddings. A mapping reads
/// the other one, and never makes this one. `mapped_options::check_sums` compares the two.
struct tied_tensor {
  name_template name, same_as;
  std::optional<size_expression> condition;
  bool is_left = true;
  int line = 0;
};

/// Models that the mapping does not fit, although their tensors have the right names and shapes.
struct refused_models {
  std::string reason;
  size_expression condition;  // such a model if this is not 0; it has no captures
  int line = 0;
};

/// A size of the model, or the range of a capture: its name, and the expression of its value.
struct named_expression {
  std::string name;
  size_expression value;
};

/// The treatment of optimizer state whose parameter a rule changes by operations on values.
enum class state_values : std::uint8_t {
  refuse,  // such state is an error
  keep,    // the state follows the index expression, and keeps its values
};

/// A mapping between two conventions.
struct mapping_rules {
  std::string left, right;                 // names of the conventions: "hf.llama", "megatron.gpt"
  std::string file;                        // of the mapping; for messages
  std::vector<named_expression> sizes;     // in order: an expression may use the names above it
  std::vector<named_expression> captures;  // a capture takes the values 0 to its size - 1
  std::vector<mapping_rule> rules;
  std::vector<ignored_tensors> ignored;
  std::vector<tied_tensor> tied;
  std::vector<refused_models> refused;  // in both directions
  state_values optimizer_values = state_values::refuse;

  /// Returns the mapping from right to left.
  mapping_rules inverse() const;
};

/// Parses a mapping of TOML; docs/mapping.md describes the keys.
/// \param file  for messages
/// \errors errc::bad_format for text that is not TOML, and errc::invalid_argument for a wrong key or expression; each
///         names the file, line, and column
result<mapping_rules> parse_mapping(std::string_view text, std::string_view file = "");
/// Reads a mapping from a file of at most 4 MiB.
/// \errors those of `parse_mapping`; errc::io
result<mapping_rules> read_mapping(const std::filesystem::path& file);

}  // namespace shardmesh
