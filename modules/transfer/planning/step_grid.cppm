// SPDX-License-Identifier: Apache-2.0
// The copies between one fragment of an owner and all fragments of a product that share cells with it. Copies are
// computed on demand: among sixteen thousand owners, each owner can have sixteen thousand copies per tensor. Exports
// nothing.
export module shardmesh.transfer:step_grid;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :step;

namespace shardmesh {

// Cells are numbered row-major by the runs of each dimension, then by replica. A step table has the same order.
struct step_grid {
  fragment own;             // the source's fragment if `sends`, else the destination's
  fragment_product others;  // the other side's fragments, within own.where
  bool sends = false;

  class cursor;
  constexpr std::int64_t cells() const { return others.count().value_or(std::numeric_limits<std::int64_t>::max()); }
  // The number of the cell that begins at `offsets` and whose fragment of `others` belongs to `owner`.
  constexpr std::int64_t cell_of(const extents& offsets, owner_id owner) const;
  constexpr std::size_t memory_bytes() const;
};

// Walks the cells of a grid, from a given cell onwards.
class step_grid::cursor {
 public:
  constexpr cursor(const step_grid& grid, std::int64_t cell) : grid_(&grid) {
    const auto take = [&](const run_axis& axis) {
      const run_axis::cursor at(axis, cell % axis.size());
      cell /= axis.size();
      return at;
    };
    replica_ = take(grid.others.replicas);
    for (std::size_t d = grid.others.dims.size(); d-- > 0;) dims_[d] = take(grid.others.dims[d]);
  }
  constexpr void next() {
    if (replica_.next()) return;
    for (std::size_t d = grid_->others.dims.size(); d-- > 0;)
      if (dims_[d].next()) return;
  }

  constexpr std::int64_t volume() const {
    std::int64_t product = 1;
    for (std::size_t d = 0; d < rank(); ++d) product *= (*dims_[d]).size;
    return product;
  }
  constexpr step_head head() const {
    step_head made;
    (grid_->sends ? made.from_owner : made.to_owner) = grid_->own.owner;
    (grid_->sends ? made.from_slot : made.to_slot) = grid_->own.slot;
    (grid_->sends ? made.to_owner : made.from_owner) = peer();
    made.to_side = buffer_side::destination;
    return made;
  }
  constexpr box where() const {
    box cell{extents::filled(rank(), 0), extents::filled(rank(), 0)};
    for (std::size_t d = 0; d < rank(); ++d) cell.offsets[d] = (*dims_[d]).begin, cell.sizes[d] = (*dims_[d]).size;
    return cell;
  }
  constexpr step whole() const {
    const step_head h = head();
    step made;
    made.where = where();
    made.from = {h.from_owner, h.from_side, h.from_slot, {}};
    made.to = {h.to_owner, h.to_side, h.to_slot, {}};
    step_end& mine = grid_->sends ? made.from : made.to;
    step_end& theirs = grid_->sends ? made.to : made.from;
    mine.offsets = grid_->own.local_offsets;
    theirs.offsets = extents::filled(rank(), 0);
    for (std::size_t d = 0; d < rank(); ++d) {
      mine.offsets[d] += (*dims_[d]).begin - grid_->own.where.offsets[d];
      theirs.offsets[d] = (*dims_[d]).local;
    }
    return made;
  }

 private:
  constexpr std::size_t rank() const { return grid_->others.dims.size(); }
  constexpr owner_id peer() const {
    std::int64_t owner = (*replica_).owner;
    for (std::size_t d = 0; d < rank(); ++d) owner += (*dims_[d]).owner;
    return static_cast<owner_id>(owner);
  }

  const step_grid* grid_;
  run_axis::cursor replica_;
  std::array<run_axis::cursor, max_rank> dims_;
};

constexpr std::int64_t step_grid::cell_of(const extents& offsets, owner_id owner) const {
  std::int64_t cell = 0, rest = owner;
  for (std::size_t d = 0; d < others.dims.size(); ++d) {
    const run_axis& axis = others.dims[d];
    const std::int64_t index = axis.index_of(offsets[d]);
    cell = cell * axis.size() + index;
    rest -= axis[index].owner;
  }
  return cell * others.replicas.size() + others.replicas.index_of(rest);
}

constexpr std::size_t step_grid::memory_bytes() const {
  std::size_t sum = sizeof(step_grid) + others.replicas.memory_bytes();
  for (const run_axis& axis : others.dims) sum += sizeof axis + axis.memory_bytes();
  return sum;
}

}  // namespace shardmesh
