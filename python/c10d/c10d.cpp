// SPDX-License-Identifier: Apache-2.0
// shardmesh._c10d: ranks of a PyTorch process group, for ranks on several machines. It is separate from _native, which
// knows no torch: this module fits only the PyTorch that it was built with.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "../native/errors.hpp"
#include "../native/foreign_ranks.hpp"

import shardmesh;
import shardmesh.torch;

namespace py = pybind11;

PYBIND11_MODULE(_c10d, native) {
  native.def(
      "communicator",
      [](const std::string& group_name) {
        shardmesh::any_communicator made(bindings::value_of(shardmesh::c10d_communicator::named(group_name)));
        return py::capsule(new shardmesh::any_communicator(std::move(made)), bindings::foreign_ranks,
                           [](void* kept) { delete static_cast<shardmesh::any_communicator*>(kept); });
      },
      py::arg("group_name"));
}
