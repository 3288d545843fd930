// SPDX-License-Identifier: Apache-2.0
// Names of tensors with captures in braces: "model.layers.{layer}.mlp.up_proj.weight".
export module shardmesh.mapping:name_template;

import shardmesh.std;
import shardmesh.core;
import :size_expression;

export namespace shardmesh {

/// A tensor's name with captures. A capture is an expression in braces, such as {layer} or {layer - first}. "{{" and
/// "}}" stand for braces.
class name_template {
 public:
  /// \errors errc::invalid_argument for an empty name, a brace without its partner, or a wrong expression
  static result<name_template> parse(std::string_view text);

  /// Returns the name for these values of the captures.
  /// \errors those of `size_expression::evaluate`; errc::invalid_argument for a negative number
  result<std::string> spell(const named_sizes& values) const;

  const std::string& text() const { return text_; }
  /// Returns the names that its captures use, each once, in order of appearance.
  const std::vector<std::string>& captures() const { return captures_; }

 private:
  struct part {
    std::string literal;                    // before the capture
    std::optional<size_expression> number;  // nothing after the last capture
  };
  std::string text_;
  std::vector<part> parts_;
  std::vector<std::string> captures_;
};

}  // namespace shardmesh
