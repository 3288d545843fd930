// SPDX-License-Identifier: Apache-2.0
// placement: the effect of one mesh dimension on a tensor. Mesh and shape are in `tensor_layout`; cutting is in `cut`.
export module shardmesh.layout:placement;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The kinds of a `placement`: PyTorch's Replicate, Shard, _StridedShard, and Partial, and our shard_segments.
enum class placement_kind : std::uint8_t {
  replicate,      // every coordinate holds the whole tensor
  shard,          // coordinate i holds part i of a dimension
  strided_shard,  // coordinate i holds part i of each piece of a dimension
  partial,        // every coordinate holds a term of a reduction
  shard_segments  // coordinate i holds part i of each segment of a dimension
};

/// The effect of one mesh dimension on a tensor. A value that can be a template argument (see `static_layout`).
/// Source: torch.distributed.tensor.placement_types.
struct placement {
  /// The maximum number of segments. Their storage is fixed, because template arguments hold no pointers.
  static constexpr std::int32_t max_segments = 16;

  placement_kind kind = placement_kind::replicate;
  reduce_op reduction = reduce_op::none;          // for partial
  std::int32_t dim = 0;                           // of a shard of any kind; negative counts from the last dimension
  std::int64_t split_factor = 1;                  // for strided_shard
  std::int32_t segment_count = 0;                 // for shard_segments; layouts refuse more than `max_segments`
  std::int64_t segment_sizes[max_segments] = {};  // for shard_segments, in order; 0 after the last segment

  /// Every coordinate holds the whole tensor.
  static constexpr placement replicate() { return {}; }
  /// Coordinate i holds part i of tensor dimension `dim`.
  static constexpr placement shard(std::int32_t dim) { return {placement_kind::shard, reduce_op::none, dim, 1}; }
  /// Cuts dimension `dim` into `split_factor` pieces first; coordinate i holds part i of every piece, one after the
  /// other. This is PyTorch's _StridedShard, which FSDP over tensor parallelism needs.
  static constexpr placement strided_shard(std::int32_t dim, std::int64_t split_factor) {
    return {placement_kind::strided_shard, reduce_op::none, dim, split_factor};
  }
  /// Cuts each segment of dimension `dim` separately, such as q, k, and v in a fused tensor. Coordinate i holds part i
  /// of segment 0, then part i of segment 1, and so on, as in Megatron and vLLM. The sizes add up to the size of the
  /// dimension. If earlier mesh dimensions also cut it, this one cuts the indices that they leave of each segment.
  /// PyTorch's DTensor has no such placement.
  static constexpr placement shard_segments(std::int32_t dim, std::span<const std::int64_t> sizes) {
    placement made{placement_kind::shard_segments, reduce_op::none, dim, 1};
    for (const std::int64_t size : sizes) {
      if (made.segment_count < max_segments) made.segment_sizes[made.segment_count] = size;
      if (made.segment_count <= max_segments) ++made.segment_count;
    }
    return made;
  }
  static constexpr placement shard_segments(std::int32_t dim, std::initializer_list<std::int64_t> sizes) {
    return shard_segments(dim, std::span<const std::int64_t>(sizes.begin(), sizes.size()));
  }
  /// Every coordinate holds one term; the tensor is their reduction.
  static constexpr placement partial(reduce_op op) { return {placement_kind::partial, op, 0, 1}; }

  /// Returns whether this placement cuts a tensor dimension.
  constexpr bool is_shard() const {
    return kind == placement_kind::shard || kind == placement_kind::strided_shard ||
           kind == placement_kind::shard_segments;
  }

  /// The sizes of the segments, within this placement; none for other kinds.
  constexpr std::span<const std::int64_t> segments() const {
    const std::int32_t most = kind == placement_kind::shard_segments ? max_segments : 0;
    const std::int32_t stored = std::clamp(segment_count, std::int32_t{0}, most);
    return std::span<const std::int64_t>(segment_sizes, static_cast<std::size_t>(stored));
  }
  /// The sum of the segments; nothing when it does not fit in 64 bits.
  constexpr std::optional<std::int64_t> segments_end() const {
    std::optional<std::int64_t> sum = 0;
    for (const std::int64_t size : segments())
      if (sum) sum = checked_add(*sum, size);
    return sum;
  }

  friend constexpr bool operator==(const placement&, const placement&) = default;
  friend constexpr auto operator<=>(const placement&, const placement&) = default;
};

/// Formats a placement as "S(0)", "SS(0,2)", "SG(0,64:16:16)", "R", or "P(sum)".
std::string to_string(const placement& p);
/// Formats the placements of all mesh dimensions: "S(0), R".
std::string to_string(const std::vector<placement>& placements);

/// Parses a comma-separated list of "S(d)", "SS(d,k)", "SG(d,n:n:n)", "R", "P", and "P(op)". `SG` is `shard_segments`,
/// `P` is `P(sum)`, d may be negative, and blanks are ignored. \errors errc::invalid_argument with the text and the
/// place.
result<std::vector<placement>> parse_placements(std::string_view text);

}  // namespace shardmesh
