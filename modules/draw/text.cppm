// SPDX-License-Identifier: Apache-2.0
// Pictures made of characters: the owners of a distribution, and the traffic of a plan. SVG is in svg.
export module shardmesh.draw:text;

import shardmesh.std;
import shardmesh.layout;
import shardmesh.transfer;

export namespace shardmesh {

/// The size and colours of a picture. `draw_layout` uses all members except `max_lines`, and `draw_tree` all except
/// `max_slices`. `svg_tree` uses `max_columns` and `max_lines`; `draw_plan` uses `color` and `max_columns`.
struct draw_options {
  bool color = false;  // ANSI colours: one per owner, per kind of container in a tree, or per amount in a plan
  std::size_t max_columns = 100;  // width of the picture, in characters
  std::size_t max_slices = 8;     // 2-d maps of a tensor with more dimensions
  std::size_t max_lines = 200;    // nodes of a tree
};

/// Draws the owners of a distribution as maps of the last two dimensions, one per slice of the others. Every rectangle
/// is a box with the owners that hold it ("0", "0-3", "0,2"; "." if no owner holds it). Where boxes overlap, a
/// rectangle has the owners of all of them. A vector is one row, a scalar one line. A list of owners that is too long
/// for its rectangle ends in ".." and is repeated in full below the map. If there are too many boxes for the width,
/// neighbours share a rectangle and are summarised. Ends with a newline. Cost: O(fragments + size of the picture).
std::string draw_layout(const distribution& d, const draw_options& options = {});
/// Draws any distributed object in the same way: a layout, a dtensor, a sharded tensor. \errors those of
/// `distribution_of`
template <distributed_object D>
result<std::string> draw_layout(const D& d, const draw_options& options = {}) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return draw_layout(*held, options);
}

/// Draws the bytes from every rank (rows) to every rank (columns); "." is nothing. If there are too many ranks, draws
/// only the busiest pairs. Ends with a newline. Cost: O(copies).
std::string draw_plan(const transfer_plan& plan, const draw_options& options = {});

}  // namespace shardmesh
