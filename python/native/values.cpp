// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

py::tuple to_python(const extents& values) {
  py::tuple made(values.rank());
  for (std::size_t d = 0; d < values.rank(); ++d) made[d] = values[d];
  return made;
}

py::object to_python(const box& b) {
  return py::module_::import("shardmesh._error").attr("Box")(to_python(b.offsets), to_python(b.sizes));
}

py::tuple to_python(const path& p) {
  py::tuple made(p.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    made[i] = p[i].is_index() ? py::object(py::int_(p[i].index())) : py::object(text(p[i].name()));
  return made;
}

extents to_extents(const py::handle& values) {
  const auto given = py::reinterpret_borrow<py::sequence>(values);
  if (given.size() > max_rank)
    raise(fail(errc::rank_too_large, "too many dimensions")
              .with_values("at most " + std::to_string(max_rank), std::to_string(given.size())));
  extents made;
  for (const py::handle value : given) made.push_back(value.cast<std::int64_t>());
  return made;
}

box to_box(const py::handle& pair) {
  const auto given = py::reinterpret_borrow<py::sequence>(pair);
  box made{to_extents(given[0]), to_extents(given[1])};
  if (made.offsets.rank() != made.sizes.rank())
    raise(fail(errc::shape_mismatch, "offsets and sizes of a box differ in length")
              .with_values(std::to_string(made.offsets.rank()), std::to_string(made.sizes.rank())));
  return made;
}

path to_path(const py::handle& keys) {
  path made;
  for (const py::handle key : keys) {
    if (py::isinstance<py::tuple>(key))  // (0,): a dict's integer key
      made.push_back(path_key::of_integer(key.cast<py::tuple>()[0].cast<std::int64_t>()));
    else if (py::isinstance<py::int_>(key))
      made.push_back(key.cast<std::int64_t>());
    else
      made.push_back(bytes_of(key));
  }
  return made;
}

dtype to_dtype(const py::handle& name) {
  const std::string spelled = bytes_of(name);
  const auto type = parse_dtype(spelled);
  if (type) return *type;
  error unknown = fail(errc::unsupported, "shardmesh has no such dtype: " + spelled);
  if (const auto near = nearest_dtype(spelled))
    unknown.hint = "did you mean " + std::string(shardmesh::name(*near)) + "?";
  raise(unknown);
}

tensor_view to_view(const py::handle& memory) {
  const auto given = py::reinterpret_borrow<py::sequence>(memory);
  tensor_view made;
  made.data = reinterpret_cast<std::byte*>(given[0].cast<std::uintptr_t>());
  made.type = to_dtype(given[1]);
  made.sizes = to_extents(given[2]);
  made.strides = to_extents(given[3]);
  return made;
}

}  // namespace bindings
