// SPDX-License-Identifier: Apache-2.0
// box_index: finds the boxes that share a cell with a given box. It is a packed tree of bounding boxes over flat
// arrays. Splits lie between different begins, near the median. For rows, columns, grids, and guillotine cuts, the
// tree's bounding boxes therefore hardly overlap, and a query costs O(log n + result). Private to this room.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace shardmesh {

class box_index {
 public:
  box_index() = default;

  /// `offsets` and `sizes` hold `rank` numbers per box and must outlive the index; `members` are the boxes to index,
  /// none of them empty.
  box_index(std::size_t rank, std::span<const std::int64_t> offsets, std::span<const std::int64_t> sizes,
            std::vector<std::uint32_t> members)
      : rank_(rank), offsets_(offsets.data()), sizes_(sizes.data()), members_(std::move(members)) {
    if (!members_.empty()) build();
  }

  /// Calls `visit(member)` for every box that shares a cell with [begin, end), until it returns false.
  template <class Visit>
  bool query(const std::int64_t* begin, const std::int64_t* end, Visit&& visit) const {
    std::int64_t work = 0;
    return query(begin, end, work, visit);
  }

  /// The same; adds the cost to `work`: one for every node visited and for every box found.
  template <class Visit>
  bool query(const std::int64_t* begin, const std::int64_t* end, std::int64_t& work, Visit&& visit) const {
    if (nodes_.empty()) return true;
    std::vector<std::uint32_t> open{0};
    while (!open.empty()) {
      ++work;
      const std::uint32_t at = open.back();
      open.pop_back();
      if (!touches(bounds_.data() + at * 2 * rank_, bounds_.data() + at * 2 * rank_ + rank_, begin, end)) continue;
      const node& n = nodes_[at];
      if (n.left != 0) {
        open.push_back(n.left + 1);
        open.push_back(n.left);
        continue;
      }
      for (std::uint32_t i = n.first; i < n.last; ++i) {
        const std::uint32_t member = members_[i];
        bool hit = true;
        for (std::size_t d = 0; d < rank_ && hit; ++d) {
          const std::int64_t offset = offsets_[member * rank_ + d];
          hit = offset < end[d] && offset + sizes_[member * rank_ + d] > begin[d];
        }
        work += hit ? 1 : 0;
        if (hit && !visit(member)) return false;
      }
    }
    return true;
  }

 private:
  struct node {
    std::uint32_t first, last;  // range of members
    std::uint32_t left;         // children are left and left + 1; 0: a leaf
  };
  static constexpr std::uint32_t leaf_size = 8;

  bool touches(const std::int64_t* low, const std::int64_t* high, const std::int64_t* begin,
               const std::int64_t* end) const {
    for (std::size_t d = 0; d < rank_; ++d)
      if (low[d] >= end[d] || high[d] <= begin[d]) return false;
    return true;
  }

  std::int64_t begin_of(std::uint32_t member, std::size_t d) const { return offsets_[member * rank_ + d]; }

  void build() {
    nodes_.push_back({0, static_cast<std::uint32_t>(members_.size()), 0});
    std::vector<std::int64_t> spread(rank_);
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) {
      const std::uint32_t first = nodes_[at].first, last = nodes_[at].last;
      bounds_.resize((at + 1) * 2 * rank_);
      std::int64_t* low = bounds_.data() + at * 2 * rank_;
      std::int64_t* high = low + rank_;
      bound(first, last, low, high, spread);
      if (last - first <= leaf_size) continue;
      const std::uint32_t middle = split(first, last, spread);
      nodes_[at].left = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({first, middle, 0});
      nodes_.push_back({middle, last, 0});
    }
    nodes_.shrink_to_fit();
    bounds_.shrink_to_fit();
  }

  // Computes the bounding box of the members, and the spread of their begins per dimension.
  void bound(std::uint32_t first, std::uint32_t last, std::int64_t* low, std::int64_t* high,
             std::vector<std::int64_t>& spread) const {
    for (std::size_t d = 0; d < rank_; ++d) {
      std::int64_t least = begin_of(members_[first], d), most = least, end = least;
      for (std::uint32_t i = first; i < last; ++i) {
        const std::int64_t begin = begin_of(members_[i], d);
        least = std::min(least, begin);
        most = std::max(most, begin);
        end = std::max(end, begin + sizes_[members_[i] * rank_ + d]);
      }
      low[d] = least;
      high[d] = end;
      spread[d] = most - least;
    }
  }

  // Reorders the members so that those of [first, result) begin before those of [result, last) along one dimension.
  // Chooses the widest dimension that splits evenly enough. If all begins are equal (replicas), splits in the middle.
  std::uint32_t split(std::uint32_t first, std::uint32_t last, std::vector<std::int64_t>& spread) {
    const std::uint32_t count = last - first;
    std::uint32_t best = 0;
    std::size_t best_dim = 0;
    std::int64_t best_key = 0;
    for (std::size_t tries = 0; tries < rank_; ++tries) {
      const auto widest = static_cast<std::size_t>(std::max_element(spread.begin(), spread.end()) - spread.begin());
      if (spread[widest] <= 0) break;
      spread[widest] = 0;
      const auto [key, below] = median_key(first, last, widest);
      const std::uint32_t smaller = std::min(below, count - below);
      if (smaller > best) best = smaller, best_dim = widest, best_key = key;
      if (best * 8 >= count) break;
    }
    if (best == 0) return first + count / 2;
    const auto middle = std::partition(members_.begin() + first, members_.begin() + last,
                                       [&](std::uint32_t m) { return begin_of(m, best_dim) < best_key; });
    return static_cast<std::uint32_t>(middle - members_.begin());
  }

  // Returns a key near the median that leaves members on both sides, and the number of members below it, which go left.
  std::pair<std::int64_t, std::uint32_t> median_key(std::uint32_t first, std::uint32_t last, std::size_t d) {
    const auto begin = members_.begin() + first, end = members_.begin() + last;
    const auto middle = begin + (last - first) / 2;
    std::nth_element(begin, middle, end,
                     [&](std::uint32_t a, std::uint32_t b) { return begin_of(a, d) < begin_of(b, d); });
    const std::int64_t key = begin_of(*middle, d);
    std::int64_t next = key;  // the smallest key above the median
    std::uint32_t below = 0, through = 0;
    for (auto i = begin; i != end; ++i) {
      const std::int64_t b = begin_of(*i, d);
      below += b < key;
      through += b <= key;
      if (b > key && (next == key || b < next)) next = b;
    }
    const std::uint32_t count = last - first;
    if (next != key && std::min(through, count - through) > std::min(below, count - below)) return {next, through};
    return {key, below};
  }

  std::size_t rank_ = 0;
  const std::int64_t* offsets_ = nullptr;
  const std::int64_t* sizes_ = nullptr;
  std::vector<std::uint32_t> members_;
  std::vector<node> nodes_;
  std::vector<std::int64_t> bounds_;  // per node: low and high of every dimension
};

}  // namespace shardmesh
