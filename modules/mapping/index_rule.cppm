// SPDX-License-Identifier: Apache-2.0
// The expression of a rule: how the dimensions of its tensors consist of factors and segments. With known sizes, it
// becomes an `index_relation`.
export module shardmesh.mapping:index_rule;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// A named factor of a dimension. The last factor of a dimension varies fastest, as in einops.
struct index_factor {
  std::string name;      // "1": size 1
  bool repeats = false;  // "n*": the other side lacks the factor; its elements are repeated n times
  friend bool operator==(const index_factor&, const index_factor&) = default;
};

/// A segment of a sum: the indices that belong to one part. The factors' product is its length.
struct index_segment {
  std::string part;                   // empty: filler, which no tensor of the other side has
  std::vector<index_factor> factors;  // empty: length 1
  friend bool operator==(const index_segment&, const index_segment&) = default;
};

/// A factor of a dimension: a named one, or a sum of segments.
struct index_term {
  index_factor factor;                  // if there are no segments
  std::vector<index_segment> segments;  // a sum, in order
  friend bool operator==(const index_term&, const index_term&) = default;
};

/// One tensor of a rule: its dimensions, each a product of terms.
struct index_tensor {
  std::string alias;
  std::vector<std::vector<index_term>> dimensions;
  friend bool operator==(const index_tensor&, const index_tensor&) = default;
};

/// States how the elements of m left tensors correspond to those of n right tensors.
///
/// In `q: (g r d) h, k: (g d) h, v: (g d) h -> qkv: (g [q:r | k | v] d) h`, the first dimension of `qkv` is a product
/// of g groups, a sum of segments, and d. A tensor without a sum is one part, named by its alias. A tensor with a sum
/// consists of the parts that its segments name. Each part is on both sides once, with the same factors in any order.
/// `_` names filler: zeros on the right, and elements that are not used on the left.
struct index_rule {
  std::vector<index_tensor> left, right;

  /// Returns whether the rule only renames one tensor, which may have any rank.
  bool is_rename() const { return left.empty(); }
  friend bool operator==(const index_rule&, const index_rule&) = default;
};

/// Parses an expression. An empty text is a rename.
/// \errors errc::invalid_argument, naming the column
result<index_rule> parse_index_rule(std::string_view text);

/// Spells a rule as `parse_index_rule` reads it.
std::string to_string(const index_rule& rule);

}  // namespace shardmesh
