// SPDX-License-Identifier: Apache-2.0
// device_mesh: ranks arranged in an n-dimensional grid with named dimensions. The mesh knows neither devices nor
// processes. This file also parses shapes.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.layout:mesh;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Ranks arranged in an n-dimensional row-major grid. Cheap to copy. By default the ranks are 0 .. size() - 1 in order;
/// a list gives any other numbering, for example when the mesh is part of a larger communicator.
/// Source: torch.distributed.device_mesh.DeviceMesh.
class device_mesh {
 public:
  /// A mesh of one rank and no dimensions.
  device_mesh() = default;

  /// \param sizes  extent of every mesh dimension, each at least 1
  /// \param names  one name per dimension, or none; all different, not empty
  /// \param ranks  the rank at each position, row-major, all different and not negative; empty: 0 .. size() - 1
  /// \errors errc::invalid_argument naming the dimension, name, or rank; errc::overflow above 2^31 - 1 ranks;
  ///         errc::rank_too_large
  static result<device_mesh> make(std::span<const std::int64_t> sizes, std::vector<std::string> names = {},
                                  std::vector<std::int32_t> ranks = {});
  static result<device_mesh> make(std::initializer_list<std::int64_t> sizes, std::vector<std::string> names = {},
                                  std::vector<std::int32_t> ranks = {}) {
    return make(std::span(sizes.begin(), sizes.size()), std::move(names), std::move(ranks));
  }

  /// Refuses a number in place of the names.
  static result<device_mesh> make(std::initializer_list<std::int64_t> sizes, std::integral auto names) =
      SHARDMESH_REFUSE("the number of ranks follows from the sizes; what comes after them are names: {\"dp\", \"tp\"}");

  const extents& sizes() const { return sizes_; }
  /// Number of mesh dimensions.
  std::size_t rank() const { return sizes_.rank(); }
  /// Number of ranks.
  std::int64_t size() const { return size_; }
  /// The dimensions' names; empty when they have none.
  std::span<const std::string> names() const;
  /// Returns the dimension with that name, or nothing.
  std::optional<std::size_t> dimension(std::string_view name) const;
  /// The largest rank of the mesh, plus one.
  std::int32_t rank_limit() const;
  /// True when position i holds rank i.
  bool is_in_order() const { return !numbering_; }

  /// Returns the rank at a coordinate. Precondition: the coordinate is in the mesh.
  std::int32_t rank_at(const extents& coordinate) const;
  /// Returns the rank at a row-major position. Precondition: 0 <= position < size().
  std::int32_t rank_of_position(std::int64_t position) const;
  /// Returns the coordinate of a rank, or nothing when the rank is not in the mesh. Cost: O(log size).
  std::optional<extents> coordinate_of(std::int32_t rank) const;

  friend bool operator==(const device_mesh& a, const device_mesh& b);

 private:
  struct numbering;
  extents sizes_;
  std::int64_t size_ = 1;
  std::shared_ptr<const std::vector<std::string>> names_;
  std::shared_ptr<const numbering> numbering_;
};

/// Formats a mesh as "2,3" or "dp=2,tp=3".
std::string to_string(const device_mesh& mesh);

/// Parses "2,3" or "dp=2,tp=3" (either all dimensions are named or none).
/// \errors errc::invalid_argument naming the wrong part, errc::overflow, errc::rank_too_large
result<device_mesh> parse_mesh(std::string_view text);

/// Parses "10,7", "[10, 7]", or "(10,)"; a scalar is "[]", "()", or "scalar".
/// \errors errc::invalid_argument naming the wrong part, errc::overflow when the volume does not fit,
///         errc::rank_too_large
result<extents> parse_shape(std::string_view text);

/// Checks that every size is at least 0 and that the volume fits in 64 bits.
/// \errors errc::invalid_argument, errc::overflow
result<void> check_shape(const extents& shape);

}  // namespace shardmesh
