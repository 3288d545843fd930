// SPDX-License-Identifier: Apache-2.0
// The boxes of a tensor that each rank holds: the C++ half of shardmesh.Layout and redistribute.
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "module.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

// The layout of a mesh and one placement per mesh dimension, given as "S(0), R".
layout layout_of(const py::handle& shape, const std::vector<std::int64_t>& mesh_sizes,
                 std::vector<std::int32_t> mesh_ranks, const py::handle& placements) {
  auto mesh = value_of(device_mesh::make(mesh_sizes, {}, std::move(mesh_ranks)));
  return value_of(layout::make(std::move(mesh), value_of(parse_placements(bytes_of(placements))), to_extents(shape)));
}

// The distribution of boxes, each given as (rank, slot, offsets, sizes).
distribution distribution_of_boxes(const py::handle& shape, std::int32_t ranks, const py::sequence& boxes) {
  distribution_builder parts(to_extents(shape), owner_space::ranks);
  for (const py::handle one : boxes) {
    const auto given = py::reinterpret_borrow<py::sequence>(one);
    const box where = to_box(py::make_tuple(given[2], given[3]));
    parts.add(given[0].cast<std::int32_t>(), given[1].cast<std::int32_t>(), where.offsets, where.sizes);
  }
  parts.at_least_owners(ranks);
  return value_of(parts.finish());
}

// (slot, box, offsets in the slot) of each fragment of a rank.
py::list boxes_of(const distribution& d, std::int32_t rank) {
  py::list found;
  d.fragments_of(rank, [&](const fragment& one) {
    found.append(py::make_tuple(one.slot, to_python(one.where), to_python(one.local_offsets)));
    return true;
  });
  return found;
}

}  // namespace

void add_layouts(py::module_& native) {
  py::class_<layout>(native, "MeshLayout")
      .def_static("make", &layout_of, py::arg("shape"), py::arg("mesh_sizes"), py::arg("mesh_ranks"),
                  py::arg("placements"))
      .def(
          "local_shape", [](const layout& l, std::int32_t rank) { return to_python(l.local_shape(rank)); },
          py::arg("rank"))
      .def("distribution", [](const layout& l) { return value_of(distribute(l)); });
  py::class_<distribution>(native, "Distribution")
      .def_static("of_boxes", &distribution_of_boxes, py::arg("shape"), py::arg("ranks"), py::arg("boxes"))
      .def_static(
          "on_one_rank",
          [](const py::object& shape, std::int32_t rank) { return value_of(on_one_rank(to_extents(shape), rank)); },
          py::arg("shape"), py::arg("rank"))
      .def("boxes", &boxes_of, py::arg("rank"));
}

}  // namespace bindings
