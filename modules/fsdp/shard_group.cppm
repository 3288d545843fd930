// SPDX-License-Identifier: Apache-2.0
// shard_group: which ranks of a communicator share a flat parameter, and which of them hold the same part (replicas).
// Not here: talking to them (comm).
export module shardmesh.fsdp:shard_group;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// For every rank of a communicator its position in the group that shares a flat parameter. Several ranks may have one
/// position: they are replicas (hybrid sharding). Cheap to copy.
class shard_group {
 public:
  /// One rank at position 0.
  shard_group();
  /// All ranks, rank i at position i. Precondition: ranks >= 1.
  static shard_group world(std::int32_t ranks);
  /// \param positions  one per rank of the communicator; -1: not a member
  /// \errors errc::invalid_argument when the positions of members are not 0 .. size - 1, each at least once
  static result<shard_group> make(std::vector<std::int32_t> positions);
  /// The members are the ranks of `mesh`; a rank's position is its coordinate along `dim`, ranks that differ in other
  /// coordinates only are replicas: (replicate, shard) meshes with dim 1 are PyTorch's HYBRID_SHARD.
  /// \param ranks  of the communicator \errors errc::out_of_bounds (no such dimension, a mesh beyond the communicator)
  static result<shard_group> along(const device_mesh& mesh, std::size_t dim, std::int32_t ranks);

  /// Ranks of the communicator.
  std::int32_t ranks() const;
  /// Positions, which is the `group_size` of the flat parameter.
  std::int32_t size() const;
  /// Nothing for a rank that is not a member. Precondition: 0 <= rank < ranks().
  std::optional<std::int32_t> position(std::int32_t rank) const;
  /// The ranks at a position, ascending. Precondition: 0 <= position < size().
  std::span<const std::int32_t> holders(std::int32_t position) const;
  /// The ranks that hold the whole together with `rank`, by position: those with the same number of members of lower
  /// rank at their position. Empty when `rank` is not a member or its replica is not complete. Cost: O(size log ranks).
  std::vector<std::int32_t> replica_of(std::int32_t rank) const;

  friend bool operator==(const shard_group& a, const shard_group& b);

 private:
  struct description;
  explicit shard_group(std::shared_ptr<const description> made);
  std::shared_ptr<const description> description_;
};

}  // namespace shardmesh
