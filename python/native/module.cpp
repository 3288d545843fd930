// SPDX-License-Identifier: Apache-2.0
// shardmesh._native: the C++ half of the Python package. It knows no torch: tensors cross as addresses.
#include "module.hpp"

#include <shardmesh/version.hpp>

#include "errors.hpp"

import shardmesh;

namespace py = pybind11;

PYBIND11_MODULE(_native, native) {
  native.attr("version") = SHARDMESH_VERSION;
  // What value() throws.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const shardmesh::exception& e) {
      const py::object made = bindings::to_python(e.error());
      PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
    }
  });
  bindings::add_checkpoint(native);
  bindings::add_saving(native);
  bindings::add_commands(native);
  bindings::add_rank_folder(native);
  bindings::add_layouts(native);
  bindings::add_ranks(native);
}
