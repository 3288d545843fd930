// SPDX-License-Identifier: Apache-2.0
// Describes a mesh and its placements in words. The names of mesh dimensions may be any text.

// side: {mesh, mesh_names (empty if it has none), placements}
const dimension_name = (side, at) => side.mesh_names.length > 0 ? shown(side.mesh_names[at], 60) : `mesh dimension ${at}`;

// One line per mesh dimension: "dp (2 ranks): S(0)".
const placement_lines = (side) => side.placements.map((placement, at) =>
  `${dimension_name(side, at)} (${plural(side.mesh[at], "rank")}): ${placement}`);

// Explains the effect of a placement on a tensor of this shape.
function placement_meaning(placement, shape) {
  const [, kind, dimension, segments] = /^S([SG]?)\((\d+),?([\d:]*)\)$/.exec(placement) ?? [];
  if (dimension !== undefined) {
    const how = {S: ", in strides", G: `, in each segment of ${segments.split(":").map(Number).map(exact).join(", ")}`}[kind] ?? "";
    return `cuts dimension ${dimension}, of size ${exact(shape[dimension])}${how}`;
  }
  return placement === "R" ? "every rank has a copy" : "every rank has a term of the reduction";
}

// Formats a coordinate: "dp=1, tp=0", or "1, 0" in a mesh without names.
const coordinate_text = (side, coordinate) =>
  coordinate.map((at, d) => side.mesh_names.length > 0 ? `${shown(side.mesh_names[d], 30)}=${at}` : String(at)).join(", ");
