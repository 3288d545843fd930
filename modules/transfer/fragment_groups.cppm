// SPDX-License-Identifier: Apache-2.0
// Not exported: the fragments that share a box, which is what plans are made of: all that hold it, all that want it.
// Not here: who takes what from whom (expand).
module shardmesh.transfer:fragment_groups;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

namespace shardmesh {

// While one lives, the lists of fragments that its thread makes are used again: a plan of many tensors makes some
// thousand lists of some hundred KB each, and the system's time for new pages would be half of all.
class expansion_memory {
 public:
  expansion_memory();
  expansion_memory(const expansion_memory&) = delete;
  expansion_memory& operator=(const expansion_memory&) = delete;
  ~expansion_memory();
  struct lists;

 private:
  std::unique_ptr<lists> lists_;
  lists* outer_;  // of the one around it
};

// Groups of fragments with equal boxes, ordered by box, then term, owner and slot.
class fragment_groups {
 public:
  fragment_groups();
  fragment_groups(fragment_groups&&) noexcept = default;
  fragment_groups& operator=(fragment_groups&&) noexcept = default;
  ~fragment_groups();

  inline void add(const fragment& f) {
    if (!f.where.is_empty()) all_.push_back(f);
  }
  // Behind the last `add`.
  void finish();

  inline std::size_t size() const { return ranges_.size(); }
  inline std::span<const fragment> operator[](std::size_t i) const {
    return std::span(all_).subspan(ranges_[i].first, ranges_[i].second - ranges_[i].first);
  }
  // Of all groups, in order.
  inline std::span<const fragment> all() const { return all_; }

 private:
  std::vector<fragment> all_;
  std::vector<std::pair<std::size_t, std::size_t>> ranges_;
};

fragment_groups overlapping(const distribution& d, const box& where);
fragment_groups held_by(const distribution& d, owner_id owner);

using owner_list = std::vector<owner_id>;

// Of fragments that are sorted by term, then owner: the owners of one term, ascending and unique; the fragment of an
// owner, or null; the terms.
owner_list owners_of(std::span<const fragment> group, std::int32_t term);
const fragment* find(std::span<const fragment> group, owner_id owner, std::int32_t term);
std::vector<std::int32_t> terms_of(std::span<const fragment> group);

}  // namespace shardmesh
