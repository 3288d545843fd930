// SPDX-License-Identifier: Apache-2.0
// shardmesh._native: the C++ half of the Python package. It knows no torch: tensors cross as addresses.
#include "module.hpp"

#include <large_pages.hpp>
#include <shardmesh/version.hpp>

#include <cstddef>
#include <cstdint>

#include "errors.hpp"
#include "interpreter.hpp"

import shardmesh;
import shardmesh.storage;

namespace py = pybind11;

PYBIND11_MODULE(_native, native) {
  native.attr("version") = SHARDMESH_VERSION;
  // Translates the exception that value() throws.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const shardmesh::exception& e) {
      const py::object made = bindings::to_python(e.error());
      PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
    }
  });
  py::class_<bindings::foreign_call>(native, "ForeignCall")
      .def(py::init<>())
      .def("begin", &bindings::foreign_call::begin)
      .def("end", &bindings::foreign_call::end);
  native.def("end_running_work", [] {
    bindings::end_running_work();
    bindings::discard_rank_folders();
  });
  py::module_::import("atexit").attr("register")(native.attr("end_running_work"));
  native.def(
      "prefer_large_pages",
      [](std::uintptr_t address, std::size_t size_bytes) {
        shardmesh::detail::prefer_large_pages(reinterpret_cast<void*>(address), size_bytes);
      },
      py::arg("address"), py::arg("size_bytes"));
  native.def(
      "check_not_shortened",
      [](const py::str& path) { bindings::check(shardmesh::detail::check_not_shortened(bindings::bytes_of(path))); },
      py::arg("path"));
  bindings::add_checkpoint(native);
  bindings::add_mapping(native);
  bindings::add_conventions(native);
  bindings::add_saving(native);
  bindings::add_commands(native);
  bindings::add_deltas(native);
  bindings::add_rank_folder(native);
  bindings::add_layouts(native);
  bindings::add_ranks(native);
  bindings::add_runs(native);
  bindings::add_devices(native);
}
