// SPDX-License-Identifier: Apache-2.0
// The boxes of loops that hold a part of a tensor. The copy of one box is in `gather.cpp`.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>
module shardmesh.mapping;

import :gather;

namespace shardmesh {
namespace {

// The ranges of the loops of one dimension, in the order of `cutter`'s loops.
using ranges_of_dimension = std::vector<loop_range>;

// Splits an interval of one dimension into boxes of the loops that move in it.
class cutter {
 public:
  struct loop {
    std::size_t number = 0;
    std::int64_t extent = 1, stride = 1;
  };

  cutter(const index_piece& piece, std::int32_t dimension) {
    for (std::size_t l = 0; l < piece.loops.size(); ++l)
      if (piece.loops[l].right.dimension == dimension)
        loops_.push_back({l, piece.loops[l].extent, piece.loops[l].right.stride});
    std::sort(loops_.begin(), loops_.end(), [](const loop& a, const loop& b) { return a.stride > b.stride; });
    widths_.assign(loops_.size() + 1, 1);
    for (std::size_t l = loops_.size(); l-- > 0;)
      widths_[l] = widths_[l + 1] + (loops_[l].extent - 1) * loops_[l].stride;
  }

  // Cuts the positions [begin, end), counted from the piece's origin.
  std::vector<ranges_of_dimension> cut(std::int64_t begin, std::int64_t end) {
    found_.clear();
    here_.assign(loops_.size(), {});
    descend(0, begin, end);
    return std::exchange(found_, {});
  }
  const std::vector<loop>& loops() const { return loops_; }

 private:
  void descend(std::size_t l, std::int64_t begin, std::int64_t end) {
    begin = std::max(begin, std::int64_t{0});
    end = std::min(end, widths_[l]);
    if (begin >= end) return;
    if (l == loops_.size()) return found_.push_back(here_);
    const auto& [number, extent, stride] = loops_[l];
    const std::int64_t width = widths_[l + 1];  // of one step's positions, at most `stride`
    const std::int64_t first = begin < width ? 0 : (begin - width) / stride + 1;
    const std::int64_t last = std::min(extent - 1, (end - 1) / stride);
    // The steps that lie entirely within the interval are one box.
    const std::int64_t whole_first = (begin + stride - 1) / stride;
    const std::int64_t whole_end = end < width ? 0 : std::min(extent, (end - width) / stride + 1);
    for (std::int64_t i = first; i <= last; ++i) {
      const bool is_whole = i >= whole_first && i < whole_end;
      here_[l] = {i, is_whole ? whole_end - i : 1};
      descend(l + 1, is_whole ? 0 : begin - i * stride, is_whole ? width : end - i * stride);
      if (is_whole) i = whole_end - 1;
    }
  }

  std::vector<loop> loops_;
  std::vector<std::int64_t> widths_;  // number of positions from the first to the last of loops l and later
  ranges_of_dimension here_;
  std::vector<ranges_of_dimension> found_;
};

}  // namespace

result<void> for_each_loop_box(const index_piece& piece, const box& part,
                               function_ref<result<void>(std::vector<loop_range>& ranges)> visit) {
  for (const index_loop& loop : piece.loops)
    if (loop.extent == 0) return {};
  std::vector<cutter> cutters;
  std::vector<std::vector<ranges_of_dimension>> choices;  // per dimension
  for (std::size_t d = 0; d < part.rank(); ++d) {
    cutter& made = cutters.emplace_back(piece, static_cast<std::int32_t>(d));
    const std::int64_t begin = part.offsets[d] - piece.right_origin[d];
    choices.push_back(made.cut(begin, begin + part.sizes[d]));
    if (choices.back().empty()) return {};
  }
  std::vector<loop_range> ranges(piece.loops.size());
  std::vector<std::size_t> chosen(part.rank(), 0);
  while (true) {
    for (std::size_t d = 0; d < part.rank(); ++d)
      for (std::size_t l = 0; l < cutters[d].loops().size(); ++l)
        ranges[cutters[d].loops()[l].number] = choices[d][chosen[d]][l];
    SHARDMESH_TRY(visit(ranges));
    std::size_t d = part.rank();
    while (d > 0 && ++chosen[d - 1] == choices[d - 1].size()) chosen[--d] = 0;
    if (d == 0) return {};
  }
}

}  // namespace shardmesh
