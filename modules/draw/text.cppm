// SPDX-License-Identifier: Apache-2.0
// Pictures made of characters: who holds what, who sends what to whom. Not here: SVG.
export module shardmesh.draw:text;

import shardmesh.std;
import shardmesh.layout;
import shardmesh.transfer;

export namespace shardmesh {

/// How large a picture of characters may be, and whether it is coloured. `draw_layout` goes by all but `max_lines`,
/// `draw_tree` by all but `max_slices`, `svg_tree` by `max_columns` and `max_lines`, `draw_plan` by `max_columns`
/// alone.
struct draw_options {
  bool color = false;             // ANSI colours: one per owner; of a tree, one per kind of container
  std::size_t max_columns = 100;  // width of the picture, in characters
  std::size_t max_slices = 8;     // 2-d maps of a tensor with more dimensions
  std::size_t max_lines = 200;    // nodes of a tree
};

/// Who holds what, as maps of the last two dimensions, one per slice of the others; every rectangle is a box with the
/// owners that hold it ("0", "0-3", "0,2"; "." is held by nobody; where boxes overlap, their owners together). A vector
/// is one row, a scalar one line. Owners that are too many for their rectangle end in ".." and are listed below the
/// map. Where the boxes are too many for the width, neighbours share a rectangle and are summarised. Ends with a
/// newline. Cost: O(fragments + size of the picture).
std::string draw_layout(const distribution& d, const draw_options& options = {});
/// The same of whatever is distributed: a layout, a dtensor, a sharded tensor. \errors those of `distribution_of`
template <distributed_object D>
result<std::string> draw_layout(const D& d, const draw_options& options = {}) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return draw_layout(*held, options);
}

/// Bytes from every rank (rows) to every rank (columns); "." is nothing. Only the busiest pairs when ranks are too
/// many. Ends with a newline. Cost: O(copies).
std::string draw_plan(const transfer_plan& plan, const draw_options& options = {});

}  // namespace shardmesh
