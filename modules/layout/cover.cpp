// SPDX-License-Identifier: Apache-2.0
// Coverage in two steps. The proof: in a valid layout the signed corners of all boxes cancel against those of the whole
// tensor (corner sums determine how often each cell is held). Only when it fails, a search names what is wrong.
module;
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "box_index.hpp"
module shardmesh.layout;

import :model;

namespace shardmesh {
namespace {

using numbers = std::span<const std::int64_t>;

struct boxes {
  const extents& shape;
  numbers offsets, sizes;
  std::span<const owner_id> owners;

  std::size_t rank() const { return shape.rank(); }
  std::int64_t begin(std::uint32_t i, std::size_t d) const { return offsets[i * rank() + d]; }
  std::int64_t size(std::uint32_t i, std::size_t d) const { return sizes[i * rank() + d]; }
  std::int64_t end(std::uint32_t i, std::size_t d) const { return begin(i, d) + size(i, d); }
  box at(std::uint32_t i) const {
    return {extents(offsets.subspan(i * rank(), rank())), extents(sizes.subspan(i * rank(), rank()))};
  }
  bool is_within(std::uint32_t i) const {
    for (std::size_t d = 0; d < rank(); ++d)
      if (begin(i, d) < 0 || size(i, d) < 0 || begin(i, d) > shape[d] || size(i, d) > shape[d] - begin(i, d))
        return false;
    return true;
  }
  bool is_empty(std::uint32_t i) const {
    for (std::size_t d = 0; d < rank(); ++d)
      if (size(i, d) == 0) return true;
    return false;
  }
  bool equal(std::uint32_t a, std::uint32_t b) const {
    for (std::size_t d = 0; d < rank(); ++d)
      if (begin(a, d) != begin(b, d) || size(a, d) != size(b, d)) return false;
    return true;
  }
  std::int64_t volume(std::uint32_t i) const {
    std::int64_t product = 1;
    for (std::size_t d = 0; d < rank(); ++d) product *= size(i, d);
    return product;
  }
};

// The part of a box that lies in the tensor; what makes no sense becomes empty.
void clip(const extents& shape, std::span<std::int64_t> offsets, std::span<std::int64_t> sizes) {
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    const auto end = checked_add(offsets[d], sizes[d]);
    const std::int64_t from = std::clamp<std::int64_t>(offsets[d], 0, shape[d]);
    sizes[d] = sizes[d] <= 0 || !end ? 0 : std::clamp<std::int64_t>(*end, from, shape[d]) - from;
    offsets[d] = from;
  }
}

class report_writer {
 public:
  report_writer(std::size_t max_problems, owner_space space) : max_(max_problems), space_(space) {}
  bool is_full() const { return report.problems.size() >= max_; }
  void add(cover_problem problem) {
    ++report.total;
    problem.space = space_;
    if (!is_full()) report.problems.push_back(std::move(problem));
  }
  cover_report report;

 private:
  std::size_t max_;
  owner_space space_;
};

// The first of each set of equal boxes, ascending.
std::vector<std::uint32_t> first_of_equals(const boxes& b, const std::vector<std::uint32_t>& members) {
  std::size_t capacity = 16;
  while (capacity < members.size() * 2) capacity *= 2;
  std::vector<std::uint32_t> table(capacity, 0);  // member + 1
  std::vector<std::uint32_t> distinct;
  distinct.reserve(members.size());
  const std::size_t bytes = b.rank() * sizeof(std::int64_t);
  for (const std::uint32_t m : members) {
    std::uint64_t hash = XXH3_64bits(b.offsets.data() + m * b.rank(), bytes);
    hash = XXH3_64bits_withSeed(b.sizes.data() + m * b.rank(), bytes, hash);
    std::size_t at = hash & (capacity - 1);
    while (table[at] != 0 && !b.equal(table[at] - 1, m)) at = (at + 1) & (capacity - 1);
    if (table[at] != 0) continue;
    table[at] = m + 1;
    distinct.push_back(m);
  }
  return distinct;
}

void radix_sort(std::vector<std::uint64_t>& keys, int bits) {
  constexpr int digit = 11;
  std::vector<std::uint64_t> other(keys.size());
  for (int shift = 0; shift < bits; shift += digit) {
    std::array<std::size_t, std::size_t{1} << digit> start{};
    for (const std::uint64_t key : keys) ++start[(key >> shift) & (start.size() - 1)];
    std::size_t sum = 0;
    for (std::size_t& s : start) sum += std::exchange(s, sum);
    for (const std::uint64_t key : keys) other[start[(key >> shift) & (start.size() - 1)]++] = key;
    keys.swap(other);
  }
}

// Numbers for the coordinates of one cut dimension: the coordinates themselves where corners of all dimensions fit into
// 62 bits together, else their positions among the coordinates that occur.
struct cut_dimension {
  std::size_t dim;
  std::uint64_t count = 0;  // numbers are below this
  std::vector<std::int64_t> occurring;
  std::uint64_t stride = 1;

  std::uint64_t number(std::int64_t coordinate) const {
    if (occurring.empty()) return static_cast<std::uint64_t>(coordinate);
    return static_cast<std::uint64_t>(std::lower_bound(occurring.begin(), occurring.end(), coordinate) -
                                      occurring.begin());
  }
};

bool assign_strides(std::vector<cut_dimension>& cuts, std::uint64_t& count) {
  count = 1;
  for (cut_dimension& c : cuts) {
    c.stride = count;
    if (__builtin_mul_overflow(count, c.count, &count) || count >= (std::uint64_t{1} << 62)) return false;
  }
  return true;
}

// The dimensions that boxes cut, numbered; nothing when corners are too many or do not fit.
std::optional<std::vector<cut_dimension>> number_cuts(const boxes& b, const std::vector<std::uint32_t>& distinct,
                                                      std::uint64_t& count) {
  std::vector<cut_dimension> cuts;
  for (std::size_t d = 0; d < b.rank(); ++d)
    if (std::any_of(distinct.begin(), distinct.end(), [&](std::uint32_t i) { return b.size(i, d) != b.shape[d]; }))
      cuts.push_back({d, static_cast<std::uint64_t>(b.shape[d]) + 1, {}, 1});
  if (cuts.size() > 8 || (distinct.size() << cuts.size()) > (std::size_t{1} << 26)) return std::nullopt;
  if (assign_strides(cuts, count)) return cuts;
  for (cut_dimension& c : cuts) {
    c.occurring = {0, b.shape[c.dim]};
    for (const std::uint32_t i : distinct) {
      c.occurring.push_back(b.begin(i, c.dim));
      c.occurring.push_back(b.end(i, c.dim));
    }
    std::sort(c.occurring.begin(), c.occurring.end());
    c.occurring.erase(std::unique(c.occurring.begin(), c.occurring.end()), c.occurring.end());
    c.count = c.occurring.size();
  }
  if (assign_strides(cuts, count)) return cuts;
  return std::nullopt;
}

// True: the boxes are proven to hold every cell once. False: they do not, or it is not known.
bool corners_cancel(const boxes& b, const std::vector<std::uint32_t>& distinct) {
  std::uint64_t count = 0;
  const auto cuts = number_cuts(b, distinct, count);
  if (!cuts) return false;
  if (cuts->empty()) return distinct.size() == 1;
  std::vector<std::uint64_t> corners;  // number of the corner, then 1 when it is subtracted
  corners.reserve((distinct.size() + 1) << cuts->size());
  std::vector<std::uint64_t> low(cuts->size()), high(cuts->size());
  const auto add_corners = [&](std::uint64_t sign) {
    for (std::size_t corner = 0; corner < (std::size_t{1} << cuts->size()); ++corner) {
      std::uint64_t number = 0, flipped = sign;
      for (std::size_t c = 0; c < cuts->size(); ++c) {
        const bool at_end = ((corner >> c) & 1) != 0;
        number += (at_end ? high[c] : low[c]) * (*cuts)[c].stride;
        flipped ^= at_end ? 1U : 0U;
      }
      corners.push_back(number << 1 | flipped);
    }
  };
  for (const std::uint32_t i : distinct) {
    for (std::size_t c = 0; c < cuts->size(); ++c) {
      low[c] = (*cuts)[c].number(b.begin(i, (*cuts)[c].dim));
      high[c] = (*cuts)[c].number(b.end(i, (*cuts)[c].dim));
    }
    add_corners(0);
  }
  for (std::size_t c = 0; c < cuts->size(); ++c) low[c] = 0, high[c] = (*cuts)[c].number(b.shape[(*cuts)[c].dim]);
  add_corners(1);

  int bits = 1;
  while (bits < 63 && (count >> (bits - 1)) != 0) ++bits;
  radix_sort(corners, bits);
  for (std::size_t i = 0; i < corners.size();) {
    std::int64_t sum = 0;
    const std::uint64_t number = corners[i] >> 1;
    for (; i < corners.size() && corners[i] >> 1 == number; ++i) sum += (corners[i] & 1) != 0 ? -1 : 1;
    if (sum != 0) return false;
  }
  return true;
}

// Names every pair of different boxes that share cells. When there are very many, counting stops.
void find_overlaps(const boxes& b, const std::vector<std::uint32_t>& distinct, report_writer& out) {
  const box_index index(b.rank(), b.offsets, b.sizes, distinct);
  std::int64_t budget = 20'000'000 + 8 * static_cast<std::int64_t>(distinct.size());
  std::vector<std::uint32_t> others;
  extents end = b.shape;
  for (const std::uint32_t i : distinct) {
    others.clear();
    for (std::size_t d = 0; d < b.rank(); ++d) end[d] = b.end(i, d);
    index.query(b.offsets.data() + i * b.rank(), end.data(), [&](std::uint32_t other) {
      if (other > i) others.push_back(other);
      return --budget > 0;
    });
    if (!out.is_full()) std::sort(others.begin(), others.end());
    for (const std::uint32_t other : others) {
      if (out.is_full()) {
        ++out.report.total;
        continue;
      }
      const auto shared = intersect(b.at(i), b.at(other));
      out.add({cover_kind::overlap, *shared, b.owners[i], b.owners[other], i, other, {}});
    }
    if (budget <= 0) {
      out.report.total_is_exact = false;
      return;
    }
  }
}

// Joins boxes that touch and have equal extent across, so that a missing row reads as one box.
void join_touching(std::vector<box>& found, std::size_t rank) {
  if (found.size() > 200'000) return;
  for (std::size_t pass = 0, before = 0; pass < 4 && found.size() != before; ++pass) {
    before = found.size();
    for (std::size_t d = 0; d < rank; ++d) {
      const auto across = [d](const box& x) {
        std::pair<extents, extents> key{x.offsets, x.sizes};
        key.first[d] = key.second[d] = 0;
        return key;
      };
      std::sort(found.begin(), found.end(), [&](const box& x, const box& y) {
        const auto kx = across(x), ky = across(y);
        return kx != ky ? kx < ky : x.offsets[d] < y.offsets[d];
      });
      std::size_t kept = 0;
      for (std::size_t i = 1; i < found.size(); ++i) {
        if (found[kept].end(d) == found[i].offsets[d] && across(found[kept]) == across(found[i]))
          found[kept].sizes[d] += found[i].sizes[d];
        else
          found[++kept] = found[i];
      }
      if (!found.empty()) found.resize(kept + 1);
    }
  }
  std::sort(found.begin(), found.end());
}

struct region {
  box where;
  std::vector<std::uint32_t> members;  // boxes that share cells with it
};

std::int64_t held_volume(const boxes& b, const region& r) {
  std::int64_t sum = 0;
  for (const std::uint32_t i : r.members) {
    std::int64_t volume = 1;
    for (std::size_t d = 0; d < b.rank(); ++d)
      volume *= std::min(b.end(i, d), r.where.end(d)) - std::max(b.begin(i, d), r.where.offsets[d]);
    sum += volume;
  }
  return sum;
}

// Where to cut the region: the median of the box edges inside it, along the dimension that has most of them.
std::pair<std::size_t, std::int64_t> middle_edge(const boxes& b, const region& r) {
  std::vector<std::int64_t> edges, best;
  std::size_t best_dim = 0;
  for (std::size_t d = 0; d < b.rank(); ++d) {
    edges.clear();
    for (const std::uint32_t i : r.members)
      for (const std::int64_t edge : {b.begin(i, d), b.end(i, d)})
        if (edge > r.where.offsets[d] && edge < r.where.end(d)) edges.push_back(edge);
    if (edges.size() > best.size()) best.swap(edges), best_dim = d;
  }
  const auto middle = best.begin() + static_cast<std::ptrdiff_t>(best.size() / 2);
  std::nth_element(best.begin(), middle, best.end());
  return {best_dim, *middle};
}

// The boxes of cells that nobody holds: halves the tensor at box edges, leaving out what is full.
void find_gaps(const boxes& b, const std::vector<std::uint32_t>& distinct, bool overlaps, report_writer& out) {
  std::vector<region> open;
  open.push_back({box::whole(b.shape), distinct});
  std::vector<box> gaps;
  std::int64_t budget = 50'000'000 + 200 * static_cast<std::int64_t>(distinct.size());
  while (!open.empty() && budget > 0) {
    const region r = std::move(open.back());
    open.pop_back();
    budget -= static_cast<std::int64_t>(r.members.size()) + 1;
    if (r.members.empty()) {
      gaps.push_back(r.where);
      continue;
    }
    if (!overlaps && held_volume(b, r) == r.where.volume()) continue;
    if (std::any_of(r.members.begin(), r.members.end(), [&](std::uint32_t i) { return lies_within(r.where, b.at(i)); }))
      continue;
    const auto [d, edge] = middle_edge(b, r);
    region low{r.where, {}}, high{r.where, {}};
    low.where.sizes[d] = edge - r.where.offsets[d];
    high.where.offsets[d] = edge;
    high.where.sizes[d] = r.where.end(d) - edge;
    for (const std::uint32_t i : r.members) {
      if (b.begin(i, d) < edge) low.members.push_back(i);
      if (b.end(i, d) > edge) high.members.push_back(i);
    }
    open.push_back(std::move(high));
    open.push_back(std::move(low));
  }
  if (!open.empty()) out.report.total_is_exact = false;
  join_touching(gaps, b.rank());
  for (const box& gap : gaps) out.add({cover_kind::gap, gap, 0, 0, 0, 0, {}});
}

}  // namespace

std::string to_string(const cover_problem& p) {
  const char* one = p.space == owner_space::ranks ? "rank" : "item";
  switch (p.kind) {
    case cover_kind::overlap:
      if (p.first == p.second) return fmt::format("two boxes of {} {} overlap in {}", one, p.first, to_string(p.where));
      return fmt::format("{}s {} and {} overlap in {}", one, p.first, p.second, to_string(p.where));
    case cover_kind::gap:
      return fmt::format("{} is held by no {}", to_string(p.where), one);
    case cover_kind::out_of_bounds:
      if (!is_well_formed(p.where))
        return fmt::format("{} {} has a box with offsets {} and sizes {}", one, p.first, to_string(p.where.offsets),
                           to_string(p.where.sizes));
      return fmt::format("{} {} leaves the tensor with {}", one, p.first, to_string(p.where));
  }
  return {};
}

cover_report check_cover(const distribution& d, std::size_t max_problems) {
  if (d.is_complete()) return {};
  const boxes_view flat = d.description().flat();
  return check_boxes(d.global_shape(), flat.offsets, flat.sizes, flat.owners, max_problems, d.space());
}

cover_report check_boxes(const extents& shape, std::span<const std::int64_t> offsets,
                         std::span<const std::int64_t> sizes, std::span<const owner_id> owners,
                         std::size_t max_problems, owner_space space) {
  const boxes given{shape, offsets, sizes, owners};
  report_writer out(max_problems, space);
  std::vector<std::int64_t> clipped_offsets, clipped_sizes;  // copies, when a box leaves the tensor
  for (std::uint32_t i = 0; i < owners.size(); ++i) {
    if (given.is_within(i)) continue;
    out.add({cover_kind::out_of_bounds, given.at(i), owners[i], owners[i], i, i, {}});
    if (clipped_sizes.empty())
      clipped_offsets.assign(offsets.begin(), offsets.end()), clipped_sizes.assign(sizes.begin(), sizes.end());
    clip(shape, std::span(clipped_offsets).subspan(i * shape.rank(), shape.rank()),
         std::span(clipped_sizes).subspan(i * shape.rank(), shape.rank()));
  }
  if (box::whole(shape).is_empty()) return out.report;
  const boxes b = clipped_sizes.empty() ? given : boxes{shape, clipped_offsets, clipped_sizes, owners};
  std::vector<std::uint32_t> members;
  members.reserve(owners.size());
  for (std::uint32_t i = 0; i < owners.size(); ++i)
    if (!b.is_empty(i)) members.push_back(i);
  const auto distinct = first_of_equals(b, members);
  if (corners_cancel(b, distinct)) return out.report;
  const std::int64_t before = out.report.total;
  find_overlaps(b, distinct, out);
  find_gaps(b, distinct, out.report.total != before, out);
  return out.report;
}

}  // namespace shardmesh
