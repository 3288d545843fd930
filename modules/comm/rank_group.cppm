// SPDX-License-Identifier: Apache-2.0
// rank_group: the global ranks of a group, in group order. Communication between them is in `communicator`.
export module shardmesh.comm:rank_group;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The ranks of a group: group rank i is global rank `global(i)`. Shard placements ("rank:7/cuda:0") name global ranks;
/// owners of distributions and peers of a communicator are group ranks. A regular value, cheap to copy.
class rank_group {
 public:
  /// Makes a group of one rank, rank 0.
  rank_group() = default;
  /// Makes the group of ranks 0 .. size - 1, in order. Precondition: size >= 1.
  static rank_group world(std::int32_t size);
  /// Makes a group of the given global ranks, in this order.
  /// \errors errc::invalid_argument: no rank, a negative rank, or a repeated rank (names it). Cost: O(n log n).
  static result<rank_group> make(std::vector<std::int32_t> global_ranks);

  std::int32_t size() const { return size_; }
  /// Precondition: 0 <= group_rank < size().
  std::int32_t global(std::int32_t group_rank) const;
  /// Returns the group rank of a global rank, or nothing for a rank outside the group. Cost: O(log n).
  std::optional<std::int32_t> group_rank(std::int32_t global) const;
  /// Returns whether group rank i is global rank i, for every i.
  bool is_world() const { return !numbering_; }
  std::vector<std::int32_t> globals() const;

  friend bool operator==(const rank_group& a, const rank_group& b);

 private:
  struct numbering;
  std::int32_t size_ = 1;
  std::shared_ptr<const numbering> numbering_;
};

/// Formats a group: "[0, 1, 3]". Long groups are shortened.
std::string to_string(const rank_group& group);

}  // namespace shardmesh
