// SPDX-License-Identifier: Apache-2.0
// Pictures as SVG documents: the owners of a distribution, and the traffic of a plan.
export module shardmesh.draw:svg;

import shardmesh.std;
import shardmesh.layout;
import shardmesh.transfer;

export namespace shardmesh {

/// Draws the owners of a distribution as an SVG document: a map of the last two dimensions per slice of the others (64
/// at most), with one coloured rectangle per box, to scale. Cost: O(fragments).
std::string svg_layout(const distribution& d);
/// Draws any distributed object in the same way: a layout, a dtensor, a sharded tensor. \errors those of
/// `distribution_of`
template <distributed_object D>
result<std::string> svg_layout(const D& d) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return svg_layout(*held);
}

/// Draws the bytes from every rank (rows) to every rank (columns) as an SVG document, darker for more. Cost: O(copies).
std::string svg_plan(const transfer_plan& plan);

}  // namespace shardmesh
