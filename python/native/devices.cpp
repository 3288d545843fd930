// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine and the libraries for them: the C++ half of shardmesh.devices.
#include <string>
#include <vector>

#include "errors.hpp"
#include "module.hpp"

import shardmesh;
import shardmesh.devices;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

// {"gpus": [(device, name, compute capability, bytes, problem)], "problem": str,
//  "libraries": [(name, usable, version, file, problem, remedy)], "kernels": str, "kernel_cache": str,
//  "kernel_cache_problem": str, "text": str}
py::dict found_devices() {
  device_report report;
  {
    const py::gil_scoped_release others_run;  // the first call of a process starts the CUDA runtime
    report = devices();
  }
  py::list gpus, libraries;
  for (const gpu_info& gpu : report.gpus)
    gpus.append(py::make_tuple(text(to_string(gpu.where)), text(gpu.name), text(gpu.compute_capability),
                               gpu.memory_bytes, text(gpu.problem)));
  for (const gpu_library& one : report.libraries)
    libraries.append(py::make_tuple(text(one.name), one.is_usable, text(one.version), text(one.file), text(one.problem),
                                    text(one.remedy)));
  py::dict made;
  made["gpus"] = gpus;
  made["problem"] = text(report.problem);
  made["libraries"] = libraries;
  made["kernels"] = text(report.kernels);
  made["kernel_cache"] = text(report.kernel_cache);
  made["kernel_cache_problem"] = text(report.kernel_cache_problem);
  made["text"] = text(to_string(report));
  return made;
}

}  // namespace

void add_devices(py::module_& native) {
  native.def("devices", &found_devices);
}

}  // namespace bindings
