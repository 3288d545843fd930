// SPDX-License-Identifier: Apache-2.0
// Pictures as SVG documents: who holds what, who sends what to whom.
export module shardmesh.draw:svg;

import shardmesh.std;
import shardmesh.layout;
import shardmesh.transfer;

export namespace shardmesh {

/// An SVG document of who holds what: a map of the last two dimensions per slice of the others (64 at most), one
/// coloured rectangle per box, drawn to scale. Cost: O(fragments).
std::string svg_layout(const distribution& d);
/// The same of whatever is distributed: a layout, a dtensor, a sharded tensor. \errors those of `distribution_of`
template <distributed_object D>
result<std::string> svg_layout(const D& d) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return svg_layout(*held);
}

/// An SVG document of the bytes from every rank (rows) to every rank (columns), darker for more. Cost: O(copies).
std::string svg_plan(const transfer_plan& plan);

}  // namespace shardmesh
