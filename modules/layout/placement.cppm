// SPDX-License-Identifier: Apache-2.0
// placement: the effect of one mesh dimension on a tensor. Mesh and shape are in `tensor_layout`; cutting is in `cut`.
export module shardmesh.layout:placement;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The kinds of a `placement`: PyTorch's Replicate, Shard, _StridedShard, and Partial.
enum class placement_kind : std::uint8_t {
  replicate,      // every coordinate holds the whole tensor
  shard,          // coordinate i holds part i of a dimension
  strided_shard,  // coordinate i holds part i of each piece of a dimension
  partial         // every coordinate holds a term of a reduction
};

/// The effect of one mesh dimension on a tensor. A value that can be a template argument (see `static_layout`).
/// Source: torch.distributed.tensor.placement_types.
struct placement {
  placement_kind kind = placement_kind::replicate;
  reduce_op reduction = reduce_op::none;  // for partial
  std::int32_t dim = 0;                   // for shard and strided_shard; negative counts from the last dimension
  std::int64_t split_factor = 1;          // for strided_shard

  /// Every coordinate holds the whole tensor.
  static constexpr placement replicate() { return {}; }
  /// Coordinate i holds part i of tensor dimension `dim`.
  static constexpr placement shard(std::int32_t dim) { return {placement_kind::shard, reduce_op::none, dim, 1}; }
  /// Cuts dimension `dim` into `split_factor` pieces first; coordinate i holds part i of every piece, one after the
  /// other. This is PyTorch's _StridedShard, which FSDP over tensor parallelism needs.
  static constexpr placement strided_shard(std::int32_t dim, std::int64_t split_factor) {
    return {placement_kind::strided_shard, reduce_op::none, dim, split_factor};
  }
  /// Every coordinate holds one term; the tensor is their reduction.
  static constexpr placement partial(reduce_op op) { return {placement_kind::partial, op, 0, 1}; }

  /// Returns whether this placement cuts a tensor dimension.
  constexpr bool is_shard() const { return kind == placement_kind::shard || kind == placement_kind::strided_shard; }

  friend constexpr bool operator==(const placement&, const placement&) = default;
  friend constexpr auto operator<=>(const placement&, const placement&) = default;
};

/// Formats a placement as "S(0)", "SS(0,2)", "R", or "P(sum)".
std::string to_string(const placement& p);
/// Formats the placements of all mesh dimensions: "S(0), R".
std::string to_string(const std::vector<placement>& placements);

/// Parses a comma-separated list of "S(d)", "SS(d,k)", "R", "P", and "P(op)". `P` is `P(sum)`, d may be negative, and
/// blanks are ignored. \errors errc::invalid_argument with the text and the place.
result<std::vector<placement>> parse_placements(std::string_view text);

}  // namespace shardmesh
