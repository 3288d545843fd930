// SPDX-License-Identifier: Apache-2.0
// layout: a tensor's shape, a mesh, and one placement per mesh dimension. Fragments are in `distribution`.
export module shardmesh.layout:tensor_layout;

import shardmesh.std;
import shardmesh.core;
import :cut;
import :mesh;
import :placement;
import :split_rule;

export namespace shardmesh {

/// A box of the global tensor and its place in the holder's local tensor. Both places have the same sizes.
struct placed_box {
  box where;
  extents local_offsets;
  friend bool operator==(const placed_box&, const placed_box&) = default;
};

/// The piece of a tensor that each rank of a mesh holds: validated mesh, placements, shape, and split rules. Mesh
/// dimensions act from left to right, as in PyTorch's DTensor. Cheap to copy.
class layout {
 public:
  /// A scalar on one rank.
  layout();

  /// \param placements  one per mesh dimension; negative tensor dimensions are resolved
  /// \param shape       sizes of the whole tensor
  /// \param rule        the rule by which every sharding mesh dimension cuts
  /// \errors errc::invalid_argument (number of placements, split factor, segments that do not add up to the size of
  ///         their dimension, a rule that does not fit), errc::out_of_bounds (a tensor dimension that does not exist),
  ///         errc::mixed_partial, errc::overflow
  static result<layout> make(device_mesh mesh, std::vector<placement> placements, const extents& shape,
                             const split_rule& rule = {});
  /// The same with one split rule per mesh dimension.
  static result<layout> make(device_mesh mesh, std::vector<placement> placements, const extents& shape,
                             std::span<const split_rule> rules);

  const device_mesh& mesh() const;
  /// One placement per mesh dimension; tensor dimensions are not negative.
  const std::vector<placement>& placements() const;
  const extents& shape() const;
  /// One rule per mesh dimension.
  const std::vector<split_rule>& rules() const;
  /// The combination of the terms on partial mesh dimensions; `none` when there is no such dimension.
  reduce_op reduction() const;
  /// Number of terms that the `avg` mesh dimensions average over; 1 when there are none.
  std::int64_t divisor() const;

  /// Returns a rank's runs of one tensor dimension, in local order. Precondition: the rank is in the mesh.
  std::vector<index_run> runs(std::int32_t rank, std::size_t dim) const;
  /// Returns the sizes of a rank's local tensor. Precondition: the rank is in the mesh.
  extents local_shape(std::int32_t rank) const;
  /// Returns the global index of a rank's first element. Where the rank holds nothing of a dimension, its entry is that
  /// dimension's size, as in torch's compute_local_shape_and_global_offset. Precondition: the rank is in the mesh.
  extents first_index(std::int32_t rank) const;
  /// Returns the boxes of a rank's local tensor, row-major in local order. There are several when a strided shard, a
  /// shard of segments, or several mesh dimensions on one tensor dimension leave gaps between runs. There are none when
  /// the rank holds nothing or is not in the mesh.
  std::vector<placed_box> boxes(std::int32_t rank) const;

  friend bool operator==(const layout& a, const layout& b);

  struct description;
  /// The members above in one object, for this room only.
  const std::shared_ptr<const description>& parts() const { return description_; }

 private:
  std::shared_ptr<const description> description_;
};

/// Formats a layout as "[10, 7] on 2,3 as S(0), S(1)".
std::string to_string(const layout& l);

}  // namespace shardmesh
