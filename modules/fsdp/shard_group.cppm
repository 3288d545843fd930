// SPDX-License-Identifier: Apache-2.0
// shard_group: the ranks of a communicator that share a flat parameter, and the replicas among them, which hold the
// same part. Communicating with them is in room comm.
export module shardmesh.fsdp:shard_group;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// The position of every rank of a communicator in the group that shares a flat parameter. Ranks with the same position
/// are replicas (hybrid sharding). Cheap to copy.
class shard_group {
 public:
  /// Makes a group of one rank, at position 0.
  shard_group();
  /// Makes a group of all ranks, with rank i at position i. Precondition: ranks >= 1.
  static shard_group world(std::int32_t ranks);
  /// Makes a group from the ranks' positions.
  /// \param positions  one per rank of the communicator; -1: not a member
  /// \errors errc::invalid_argument unless the positions of members are 0 .. size - 1, each at least once
  static result<shard_group> make(std::vector<std::int32_t> positions);
  /// Makes a group of the ranks of `mesh`. A rank's position is its coordinate along `dim`; ranks that differ only in
  /// other coordinates are replicas. A (replicate, shard) mesh with dim 1 is PyTorch's HYBRID_SHARD.
  /// \param ranks  size of the communicator
  /// \errors errc::out_of_bounds (no such dimension, a mesh beyond the communicator)
  static result<shard_group> along(const device_mesh& mesh, std::size_t dim, std::int32_t ranks);

  /// The number of ranks of the communicator.
  std::int32_t ranks() const;
  /// The number of positions, which is the `group_size` of the flat parameter.
  std::int32_t size() const;
  /// The position of a rank; empty for a rank that is not a member. Precondition: 0 <= rank < ranks().
  std::optional<std::int32_t> position(std::int32_t rank) const;
  /// The ranks at a position, ascending. Precondition: 0 <= position < size().
  std::span<const std::int32_t> holders(std::int32_t position) const;
  /// Returns the ranks that together with `rank` hold the whole, by position. If `rank` is the k-th holder of its
  /// position, they are the k-th holders of every position. Empty when `rank` is not a member or its replica is not
  /// complete.
  /// Cost: O(size log ranks).
  std::vector<std::int32_t> replica_of(std::int32_t rank) const;

  friend bool operator==(const shard_group& a, const shard_group& b);

 private:
  struct description;
  explicit shard_group(std::shared_ptr<const description> made);
  std::shared_ptr<const description> description_;
};

}  // namespace shardmesh
