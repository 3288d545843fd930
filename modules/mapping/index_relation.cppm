// SPDX-License-Identifier: Apache-2.0
// A rule with known sizes: the correspondence of elements, as arithmetic on indices.
export module shardmesh.mapping:index_relation;

import shardmesh.std;
import shardmesh.core;
import :index_rule;
import :size_expression;

export namespace shardmesh {

/// An index that runs from 0 to `extent`, and moves the position in one dimension of each side.
struct index_loop {
  /// A side's dimension, and how far one step of the loop moves in it. `dimension` is -1 if the side does not move: it
  /// has one element where the other side has a repetition.
  struct step {
    std::int32_t dimension = -1;
    std::int64_t stride = 0;
  };
  std::int64_t extent = 1;
  step left, right;
};

/// The elements that a left tensor shares with a right one. On each side, element (i0, i1, ..) of the loops is at
/// origin + sum of i * stride in each dimension.
struct index_piece {
  std::size_t left_tensor = 0, right_tensor = 0;
  extents left_origin, right_origin;
  std::vector<index_loop> loops;  // of extents other than 1; at most max_rank
};

/// Elements of a tensor that have no counterpart: its loops move on this side only.
struct index_filler {
  extents origin;
  std::vector<index_loop> loops;
};

/// One tensor of a relation.
struct related_tensor {
  std::string alias;
  extents shape;
  std::int64_t related_elements = 0;  // in pieces; the other elements are filler
  std::vector<index_filler> fillers;
};

/// A rule with known sizes. Each element of a tensor belongs to exactly one piece, or is filler.
struct index_relation {
  std::vector<related_tensor> left, right;
  std::vector<index_piece> pieces;
};

/// Computes the factors that `sizes` lacks from the tensors' shapes: a dimension with one unknown factor and no sum
/// determines it. `left` and `right` have one shape per tensor of that side of the rule, or nothing where the shape is
/// unknown.
/// \errors errc::shape_mismatch for a tensor of another rank, or a dimension that its known factors do not divide
result<void> infer_sizes(const index_rule& rule, std::span<const std::optional<extents>> left,
                         std::span<const std::optional<extents>> right, named_sizes& sizes);

/// Makes the relation of a rule. It also proves that the rule is complete: the segments of a sum divide a tensor
/// without gap or overlap, and each part is on both sides once, with equal loops.
/// \errors errc::missing_key for a factor of unknown size; errc::invalid_argument for a part that one side lacks or has
///         twice, a factor that one side of a part lacks, and a factor that occurs twice; errc::overflow
result<index_relation> relate(const index_rule& rule, const named_sizes& sizes);

}  // namespace shardmesh
