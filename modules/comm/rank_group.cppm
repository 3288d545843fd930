// SPDX-License-Identifier: Apache-2.0
// rank_group: which global ranks a group consists of, in group order. Not here: talking to them (communicator).
export module shardmesh.comm:rank_group;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The ranks of a group: group rank i is global rank `global(i)`. Placements of shards ("rank:7/cuda:0") are global
/// ranks; owners of distributions and peers of a communicator are group ranks. A regular value, cheap to copy.
class rank_group {
 public:
  /// One rank: 0.
  rank_group() = default;
  /// 0 .. size - 1 in order. Precondition: size >= 1.
  static rank_group world(std::int32_t size);
  /// \errors errc::invalid_argument: no rank, a negative one, one twice (names the rank). Cost: O(n log n).
  static result<rank_group> make(std::vector<std::int32_t> global_ranks);

  std::int32_t size() const { return size_; }
  /// Precondition: 0 <= group_rank < size().
  std::int32_t global(std::int32_t group_rank) const;
  /// The position of a global rank in the group, or nothing. Cost: O(log n).
  std::optional<std::int32_t> group_rank(std::int32_t global) const;
  /// True when group rank i is global rank i.
  bool is_world() const { return !numbering_; }
  std::vector<std::int32_t> globals() const;

  friend bool operator==(const rank_group& a, const rank_group& b);

 private:
  struct numbering;
  std::int32_t size_ = 1;
  std::shared_ptr<const numbering> numbering_;
};

/// "[0, 1, 3]"; long ones are shortened.
std::string to_string(const rank_group& group);

}  // namespace shardmesh
