// SPDX-License-Identifier: Apache-2.0
// Finds the places where boxes do not cover a region exactly once. The search halves the region at box edges and drops
// every half whose boxes add up to its measure (cover_measure.hpp). A single defect among n boxes costs O(n), and each
// further one a little more. The results are the cells that no box holds, as boxes, and the boxes that share cells. The
// overlapping pairs themselves are found with box_index.hpp. Private to this room.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cover_measure.hpp"

namespace shardmesh::covering {

/// The extent of a box along one dimension, with the marks of its ends.
struct extent_1d {
  std::int64_t begin = 0, end = 0;
  std::uint64_t begin_mark = 0, end_mark = 0;
};

class defect_search {
 public:
  /// `boxes` has `dims` (at least 1) entries per box; the boxes are non-empty and lie inside `region`.
  defect_search(std::size_t dims, std::vector<extent_1d> boxes, std::vector<extent_1d> region, bool wants_gaps)
      : dims_(dims),
        boxes_(std::move(boxes)),
        wants_gaps_(wants_gaps),
        is_suspect_(boxes_.size() / dims, false),
        edges_(dims) {
    std::vector<std::uint32_t> all(boxes_.size() / dims);
    std::uint64_t sum = 0;
    bool has_full = false;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      all[i] = i;
      sum = field::add(sum, measure(&boxes_[i * dims]));
      has_full = has_full || spans(&boxes_[i * dims], region.data(), dims);
    }
    settle(region, all, sum, has_full);
  }

  /// Searches everything, or until `work` (the number of boxes visited) is spent. When gaps are wanted, it continues
  /// until it has found a defect.
  void run(std::int64_t work) {
    const std::size_t most_gaps = 1'000'000 + 4 * is_suspect_.size();
    while (!open_.empty()) {
      if ((found_ || !wants_gaps_) && (work <= 0 || gaps_.size() > most_gaps * 2 * dims_)) return;
      work -= static_cast<std::int64_t>(halve());
    }
  }

  bool has_found() const { return found_; }
  bool is_complete() const { return open_.empty(); }
  /// Boxes that nothing holds: begin and end per dimension; disjoint.
  std::vector<std::int64_t>& gaps() { return gaps_; }
  /// Boxes that are known to share cells with others, ascending. A complete search lists them all.
  std::vector<std::uint32_t> suspects() const {
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 0; i < is_suspect_.size(); ++i)
      if (is_suspect_[i]) all.push_back(i);
    return all;
  }

 private:
  struct region {
    std::size_t first;  // its boxes are stack_[first, ..): only the last open region is processed
    std::uint64_t sum;  // measure of its boxes inside the region
  };
  struct cut {
    std::size_t dim = 0;
    extent_1d at;  // only `begin` and its mark are used
    bool in_slabs = false;
  };

  std::uint64_t measure(const extent_1d* of) const {
    std::uint64_t product = 1;
    for (std::size_t d = 0; d < dims_; ++d)
      product = field::multiply(product, field::subtract(of[d].end_mark, of[d].begin_mark));
    return product;
  }

  // Returns whether `box` contains `where` in all dimensions but `except`.
  bool spans(const extent_1d* box, const extent_1d* where, std::size_t except) const {
    for (std::size_t d = 0; d < dims_; ++d)
      if (d != except && (box[d].begin > where[d].begin || box[d].end < where[d].end)) return false;
    return true;
  }

  // Classifies a region with these boxes: covered, overlapping, a gap, or still open. Most are covered or go to the
  // stack.
  void settle(const std::vector<extent_1d>& where, const std::vector<std::uint32_t>& boxes, std::uint64_t sum,
              bool has_full) {
    if (sum == field::normal(measure(where.data()))) return;
    if (has_full) {  // all other boxes share cells with the full one
      found_ = true;
      for (const std::uint32_t i : boxes) is_suspect_[i] = true;
    } else if (boxes.empty()) {
      if (!wants_gaps_) return;
      found_ = true;
      for (const extent_1d& e : where) gaps_.insert(gaps_.end(), {e.begin, e.end});
    } else {
      open_.push_back({stack_.size(), sum});
      stack_.insert(stack_.end(), boxes.begin(), boxes.end());
      bounds_.insert(bounds_.end(), where.begin(), where.end());
    }
  }

  // Cuts the last region and settles both halves. Returns the number of boxes visited.
  std::size_t halve() {
    const region r = open_.back();
    open_.pop_back();
    current_.assign(stack_.begin() + static_cast<std::ptrdiff_t>(r.first), stack_.end());
    stack_.resize(r.first);
    where_.assign(bounds_.end() - static_cast<std::ptrdiff_t>(dims_), bounds_.end());
    bounds_.resize(bounds_.size() - dims_);

    const cut c = middle_edge();
    if (c.in_slabs && is_held_by_slabs(c.dim)) return current_.size() * 4;
    std::uint64_t left_sum = 0;
    bool left_full = false, right_full = false;
    left_.clear();
    right_.clear();
    for (const std::uint32_t i : current_) {
      const extent_1d* box = &boxes_[i * dims_];
      const extent_1d& along = box[c.dim];
      const extent_1d& whole = where_[c.dim];
      if (along.end > c.at.begin) {
        right_.push_back(i);
        if (!right_full && along.begin <= c.at.begin && along.end >= whole.end)
          right_full = spans(box, where_.data(), c.dim);
      }
      if (along.begin >= c.at.begin) continue;
      left_.push_back(i);
      if (!left_full && along.begin <= whole.begin && along.end >= c.at.begin)
        left_full = spans(box, where_.data(), c.dim);
      const std::uint64_t end = along.end < c.at.begin ? along.end_mark : c.at.begin_mark;
      const std::uint64_t begin = along.begin > whole.begin ? along.begin_mark : whole.begin_mark;
      left_sum = field::add(left_sum, field::multiply(across(box, c.dim), field::subtract(end, begin)));
    }
    const extent_1d whole = where_[c.dim];
    where_[c.dim] = {c.at.begin, whole.end, c.at.begin_mark, whole.end_mark};
    settle(where_, right_, field::subtract(r.sum, left_sum), right_full);
    where_[c.dim] = {whole.begin, c.at.begin, whole.begin_mark, c.at.begin_mark};
    settle(where_, left_, left_sum, left_full);
    return current_.size();
  }

  // Returns the measure of the part of `box` in the region, without dimension `except`.
  std::uint64_t across(const extent_1d* box, std::size_t except) const {
    std::uint64_t product = 1;
    for (std::size_t d = 0; d < dims_; ++d) {
      if (d == except) continue;
      const std::uint64_t begin = box[d].begin > where_[d].begin ? box[d].begin_mark : where_[d].begin_mark;
      const std::uint64_t end = box[d].end < where_[d].end ? box[d].end_mark : where_[d].end_mark;
      product = field::multiply(product, field::subtract(end, begin));
    }
    return product;
  }

  // Returns an edge near the median of the box edges inside the region, along the dimension with the most edges.
  cut middle_edge() {
    constexpr std::size_t sample = 512;
    for (auto& edges : edges_) edges.clear();
    std::array<std::size_t, tally::most_dims> slabs{};
    const std::size_t looked_at = std::min(sample, current_.size());
    for (std::size_t s = 0; s < looked_at; ++s) {
      const extent_1d* box = &boxes_[current_[current_.size() <= sample ? s : somewhere(current_.size())] * dims_];
      std::size_t dims_with_edges = 0, last = 0;
      for (std::size_t d = 0; d < dims_; ++d) {
        const std::size_t before = edges_[d].size();
        if (box[d].begin > where_[d].begin) edges_[d].push_back({box[d].begin, box[d].begin_mark});
        if (box[d].end < where_[d].end) edges_[d].push_back({box[d].end, box[d].end_mark});
        if (edges_[d].size() != before) ++dims_with_edges, last = d;
      }
      if (dims_with_edges == 1) ++slabs[last];
    }
    const auto most = std::max_element(edges_.begin(), edges_.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const auto middle = most->begin() + static_cast<std::ptrdiff_t>(most->size() / 2);
    std::nth_element(most->begin(), middle, most->end());
    cut c;
    c.dim = static_cast<std::size_t>(most - edges_.begin());
    c.at.begin = middle->first, c.at.begin_mark = middle->second;
    if (current_.size() > 64 && dims_ > 1 && slabs[c.dim] * 4 > looked_at && slabs[c.dim] < looked_at)
      c.in_slabs = true;
    return c;
  }

  // Returns a random number below `count`. A fixed stride through the boxes could match a pattern of the input.
  std::size_t somewhere(std::size_t count) {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::size_t>(random_ >> 33) % count;
  }

  // Slabs extend through the region in all dimensions but `dim`. When slabs hold the whole region, every other box
  // shares cells with them. The pieces, which can be as many as slabs times other boxes, then need no search.
  bool is_held_by_slabs(std::size_t dim) {
    struct span_1d {
      std::int64_t begin, end;
      std::uint32_t box;
      bool is_slab;
    };
    std::vector<span_1d> spans_along;
    spans_along.reserve(current_.size());
    for (const std::uint32_t i : current_) {
      const extent_1d* box = &boxes_[i * dims_];
      spans_along.push_back({std::max(box[dim].begin, where_[dim].begin), std::min(box[dim].end, where_[dim].end), i,
                             spans(box, where_.data(), dim)});
    }
    std::sort(spans_along.begin(), spans_along.end(), [](const span_1d& a, const span_1d& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.box < b.box;
    });
    std::int64_t held = where_[dim].begin;
    for (const span_1d& s : spans_along) {
      if (!s.is_slab) continue;
      if (s.begin > held) return false;
      held = std::max(held, s.end);
    }
    if (held < where_[dim].end) return false;
    found_ = true;
    // A slab shares cells with every box that meets it along `dim`: an earlier box that reaches into it, or the next
    // box if that begins before the slab ends.
    std::int64_t reach = where_[dim].begin;
    for (std::size_t i = 0; i < spans_along.size(); ++i) {
      const span_1d& s = spans_along[i];
      const bool is_shared = s.begin < reach || (i + 1 < spans_along.size() && spans_along[i + 1].begin < s.end);
      if (!s.is_slab || is_shared) is_suspect_[s.box] = true;
      reach = std::max(reach, s.end);
    }
    return true;
  }

  std::size_t dims_;
  std::vector<extent_1d> boxes_;
  bool wants_gaps_;
  bool found_ = false;
  std::vector<bool> is_suspect_;
  std::vector<std::int64_t> gaps_;
  std::vector<region> open_;
  std::vector<std::uint32_t> stack_;
  std::vector<extent_1d> bounds_;  // of all open regions
  std::uint64_t random_ = 1;
  // Scratch memory of halve().
  std::vector<std::uint32_t> current_, left_, right_;
  std::vector<extent_1d> where_;
  std::vector<std::vector<std::pair<std::int64_t, std::uint64_t>>> edges_;
};

}  // namespace shardmesh::covering
