// SPDX-License-Identifier: Apache-2.0
// Counts, for each of many boxes, the other boxes that share cells with it, without visiting the pairs. In up to two
// dimensions, this is a sweep with counting trees: O(n log n), however many pairs there are. Every further dimension
// adds a segment tree around the sweep and a factor of log n. (These are the streamed segment trees of Zomorodian and
// Edelsbrunner, with counting for the innermost two dimensions.) box_index.hpp finds the pairs themselves. Private to
// this room.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace shardmesh::covering {

/// A half-open, non-empty interval.
struct interval {
  std::int64_t begin = 0, end = 0;
};

// A Fenwick tree: it adds at positions and returns the sum below a position.
class counting_tree {
 public:
  explicit counting_tree(std::size_t size) : sums_(size + 1, 0) {}
  void add(std::size_t position) {
    for (++position; position < sums_.size(); position += position & (~position + 1)) ++sums_[position];
  }
  std::int64_t below(std::size_t position) const {
    std::int64_t sum = 0;
    for (; position > 0; position &= position - 1) sum += sums_[position];
    return sum;
  }

 private:
  std::vector<std::uint32_t> sums_;
};

class degree_counter {
 public:
  /// `boxes` has `dims` (at least 1) intervals per box.
  degree_counter(std::size_t dims, std::vector<interval> boxes)
      : dims_(dims),
        boxes_(std::move(boxes)),
        degrees_(boxes_.size() / dims, 0),
        begin_position_(degrees_.size()),
        end_position_(degrees_.size()) {}

  /// Counts all pairs. In three dimensions and more, it stops once it has found a pair and spent `work`.
  void run(std::int64_t work) {
    work_ = work;
    std::vector<std::uint32_t> all(degrees_.size());
    std::iota(all.begin(), all.end(), 0U);
    if (dims_ > 2) return pair_up_along(dims_ - 1, all, all);  // counts every pair once, where the later box begins
    add_degrees(all, all);
    for (std::int64_t& degree : degrees_) --degree;  // the box itself
  }

  bool is_complete() const { return is_complete_; }
  const std::vector<std::int64_t>& degrees() const { return degrees_; }
  /// Half the sum of the degrees.
  std::int64_t pairs() const { return std::accumulate(degrees_.begin(), degrees_.end(), std::int64_t{0}) / 2; }

 private:
  using indices = std::span<const std::uint32_t>;
  using keyed = std::pair<std::int64_t, std::uint32_t>;

  const interval& along(std::uint32_t i, std::size_t d) const { return boxes_[i * dims_ + d]; }

  template <class Key>
  static std::vector<keyed> sorted_by(indices some, Key key) {
    std::vector<keyed> all;
    all.reserve(some.size());
    for (const std::uint32_t i : some) all.push_back({key(i), i});
    std::sort(all.begin(), all.end());
    return all;
  }

  // Counts the pairs of a and b (which are disjoint sets) that intersect in the first `dims` dimensions. The recursion
  // is at most 16 deep, once per dimension.
  void pair_up(std::size_t dims, indices a, indices b) {
    if (work_ <= 0 && found_) is_complete_ = false;
    if (!is_complete_ || a.empty() || b.empty()) return;
    work_ -= static_cast<std::int64_t>(a.size() + b.size());
    if (std::min(a.size(), b.size()) <= 32) return compare_all(dims, a, b);
    if (dims > 2) {
      pair_up_along(dims - 1, a, b);
      pair_up_along(dims - 1, b, a);
    } else {
      add_degrees(a, b);
      add_degrees(b, a);
    }
  }

  void compare_all(std::size_t dims, indices a, indices b) {
    work_ -= static_cast<std::int64_t>(std::min(a.size(), b.size()) * std::max(a.size(), b.size()) / 8);
    for (const std::uint32_t i : a)
      for (const std::uint32_t j : b) {
        bool meet = true;
        for (std::size_t d = 0; d < dims && meet; ++d)
          meet = along(i, d).begin < along(j, d).end && along(j, d).begin < along(i, d).end;
        if (!meet) continue;
        ++degrees_[i], ++degrees_[j];
        found_ = true;
      }
  }

  // Counts the pairs of a box of `a` and a box of `b` that begins inside it along `d`. (If both begin at one place, the
  // one with the greater index counts as later.) It uses a segment tree over the begins of `b`. Each interval of `a` is
  // stored at few nodes and meets, along `d`, all boxes below them.
  void pair_up_along(std::size_t d, indices a, indices b) {
    const auto begins = sorted_by(b, [&](std::uint32_t i) { return along(i, d).begin; });
    std::vector<std::uint32_t> points;
    points.reserve(begins.size());
    for (const keyed& k : begins) points.push_back(k.second);
    std::size_t size = 1;
    while (size < points.size()) size *= 2;
    std::vector<std::pair<std::size_t, std::uint32_t>> at_node;
    for (const std::uint32_t i : a) {
      const auto from = std::upper_bound(begins.begin(), begins.end(), keyed{along(i, d).begin, i});
      const auto to = std::lower_bound(from, begins.end(), keyed{along(i, d).end, 0});
      std::size_t low = size + static_cast<std::size_t>(from - begins.begin());
      std::size_t high = size + static_cast<std::size_t>(to - begins.begin());
      for (; low < high; low /= 2, high /= 2) {
        if (low % 2 == 1) at_node.push_back({low++, i});
        if (high % 2 == 1) at_node.push_back({--high, i});
      }
    }
    std::sort(at_node.begin(), at_node.end());
    std::vector<std::uint32_t> holders;
    for (std::size_t at = 0; at < at_node.size();) {
      std::size_t first = at_node[at].first, width = 1;
      holders.clear();
      for (; at < at_node.size() && (holders.empty() || at_node[at].first == at_node[at - 1].first); ++at)
        holders.push_back(at_node[at].second);
      for (; first < size; first *= 2) width *= 2;
      first -= size;
      pair_up(d, holders, indices(points).subspan(first, std::min(width, points.size() - first)));
    }
  }

  // Adds to each box of `a` the number of boxes of `b` that it intersects in the first two dimensions (or the only
  // one). Of the boxes that meet it along y, it counts those that begin before it ends along x, minus those that end
  // before it begins.
  void add_degrees(indices a, indices b) {
    const std::size_t y = std::min<std::size_t>(1, dims_ - 1);
    const auto begin = [this](std::size_t d) { return [this, d](std::uint32_t i) { return along(i, d).begin; }; };
    const auto end = [this](std::size_t d) { return [this, d](std::uint32_t i) { return along(i, d).end; }; };
    const auto y_begins = sorted_by(b, begin(y)), y_ends = sorted_by(b, end(y));
    for (std::uint32_t at = 0; at < b.size(); ++at) {
      begin_position_[y_begins[at].second] = at;
      end_position_[y_ends[at].second] = at;
    }
    const auto sweep = [&](const std::vector<keyed>& of_a, const std::vector<keyed>& of_b, std::int64_t reach,
                           std::int64_t sign) {
      counting_tree begun(b.size()), ended(b.size());
      std::size_t next = 0;
      for (const auto& [x, i] : of_a) {
        for (; next < of_b.size() && of_b[next].first < x + reach; ++next) {
          begun.add(begin_position_[of_b[next].second]);
          ended.add(end_position_[of_b[next].second]);
        }
        const auto before_end = std::lower_bound(y_begins.begin(), y_begins.end(), keyed{along(i, y).end, 0});
        const auto ended_before = std::lower_bound(y_ends.begin(), y_ends.end(), keyed{along(i, y).begin + 1, 0});
        degrees_[i] += sign * (begun.below(static_cast<std::size_t>(before_end - y_begins.begin())) -
                               ended.below(static_cast<std::size_t>(ended_before - y_ends.begin())));
      }
    };
    sweep(sorted_by(a, end(0)), sorted_by(b, begin(0)), 0, 1);
    sweep(sorted_by(a, begin(0)), sorted_by(b, end(0)), 1, -1);
    found_ = found_ || std::any_of(a.begin(), a.end(), [this](std::uint32_t i) { return degrees_[i] != 0; });
  }

  std::size_t dims_;
  std::vector<interval> boxes_;
  std::vector<std::int64_t> degrees_;
  std::vector<std::uint32_t> begin_position_, end_position_;  // along y, of the boxes of the current add_degrees
  std::int64_t work_ = 0;
  bool found_ = false, is_complete_ = true;
};

}  // namespace shardmesh::covering
