// SPDX-License-Identifier: Apache-2.0
// Pictures as SVG documents: the owners of a distribution, and the traffic of a plan.
export module shardmesh.draw:svg;

import shardmesh.std;
import shardmesh.layout;
import shardmesh.transfer;

export namespace shardmesh {

/// Returns a label for each mesh dimension, with its size and its placement: "dp (2 ranks): S(0)". A dimension without
/// a name is "mesh dimension 0 (2 ranks): S(0)". A long name is `shortened`. Precondition: one placement per dimension.
std::vector<std::string> placement_lines(const device_mesh& mesh, std::span<const placement> placements);

/// Draws the owners of a distribution as an SVG document: a map of the last two dimensions per slice of the others (64
/// at most), with one coloured rectangle per box, to scale. `caption`: lines above the maps, any bytes. Cost:
/// O(fragments).
std::string svg_layout(const distribution& d, std::span<const std::string> caption = {});
/// Draws a layout in the same way, with the lines of `placement_lines` above the maps. \errors those of `distribute`
result<std::string> svg_layout(const layout& l);
/// Draws any other distributed object in the same way: a dtensor, a sharded tensor. \errors those of
/// `distribution_of`
template <distributed_object D>
result<std::string> svg_layout(const D& d) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return svg_layout(*held);
}

/// Draws the bytes from every rank (rows) to every rank (columns) as an SVG document, darker for more. `caption`: lines
/// above the table, any bytes; a plan does not know the meshes and placements of its sides. Cost: O(copies).
std::string svg_plan(const transfer_plan& plan, std::span<const std::string> caption = {});

}  // namespace shardmesh
