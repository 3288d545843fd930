// SPDX-License-Identifier: Apache-2.0
// Integer expressions over the sizes of a model, such as "hidden_size / num_attention_heads". The sizes of factors, the
// ranges of captures, and the conditions of rules are such expressions.
export module shardmesh.mapping:size_expression;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Named integers: the sizes of a model's configuration, and the values of captures. Booleans are 0 or 1.
using named_sizes = std::map<std::string, std::int64_t, std::less<>>;

/// A parsed integer expression. From the loosest to the tightest operator: `a ?? b` (b if a uses a missing name), `or`,
/// `and`, `not`, `== != < <= > >=`, `+ -`, `* / // %`, and unary `-`. `/` is exact: a remainder is an error. `//`
/// rounds down. Comparisons give 0 or 1. An index makes a name: `list[i + 1].text` is the size "list[3].text" if i
/// is 2.
class size_expression {
 public:
  /// \errors errc::invalid_argument, naming the column
  static result<size_expression> parse(std::string_view text);

  /// Computes the value.
  /// \errors errc::missing_key for a name that is not in `sizes`; errc::invalid_argument for a divisor below 1, or a
  ///         division with a remainder; errc::overflow
  result<std::int64_t> evaluate(const named_sizes& sizes) const;

  const std::string& text() const { return text_; }
  /// Returns the names in the expression, each once, in order of appearance. A name with an index is without it:
  /// "list[].text".
  std::vector<std::string> names() const;
  /// Returns the name if the expression is one name and nothing else, otherwise null.
  const std::string* as_name() const;

 private:
  class parser;
  enum class operation : std::uint8_t {
    number,
    name,
    element,
    otherwise,
    logical_or,
    logical_and,
    logical_not,
    equal,
    unequal,
    less,
    less_equal,
    add,
    subtract,
    multiply,
    divide,
    divide_down,
    remainder,
    negate
  };
  struct node {
    operation what = operation::number;
    std::int64_t number = 0;
    std::string name;                 // of an element: "list[].text", with the index in `left`
    std::size_t left = 0, right = 0;  // operands, which come earlier
  };

  result<std::int64_t> value_of(std::size_t index, const named_sizes& sizes) const;
  // The value of an operation on two values. A negation is a multiplication by -1.
  result<std::int64_t> combine(operation what, std::int64_t a, std::int64_t b) const;
  result<std::int64_t> size_named(const std::string& name, const named_sizes& sizes) const;
  error refuse(errc code, std::string message) const;

  std::string text_;
  std::vector<node> nodes_;  // operands come before their operation; the last is the whole expression
};

}  // namespace shardmesh
