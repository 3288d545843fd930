// SPDX-License-Identifier: Apache-2.0
// The differences between two checkpoints: written, and shown over their base.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "errors.hpp"
#include "module.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.delta;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

using reader_pointer = std::shared_ptr<checkpoint_reader>;

// given: level, block_bytes, skip_unsupported, overwrite, threads, end (see `to_limit`), report.
py::dict write_delta(const reader_pointer& base, const reader_pointer& next, const py::str& path,
                     const py::dict& given) {
  delta_options options;
  options.level = given["level"].cast<int>();
  options.block_bytes = given["block_bytes"].cast<std::int64_t>();
  options.skip_unsupported = given["skip_unsupported"].cast<bool>();
  options.overwrite = given["overwrite"].cast<bool>();
  options.threads = given["threads"].cast<int>();
  options.within = to_limit(given["end"]);
  const std::string file = bytes_of(path);
  const delta_report report = value_of(waited(given["report"], [&](watch& watching) {
    options.cancel = watching.stop.get_token();
    options.progress = watching.progress();
    options.before_commit = watching.before_commit();
    return save_delta(*base, *next, file, options);
  }));
  py::list notes;
  for (const std::string& note : report.notes) notes.append(text(note));
  py::dict made;
  made["notes"] = notes;
  made["tensors"] = report.tensors;
  made["bytes"] = report.bytes;
  made["objects"] = report.objects;
  made["unchanged"] = report.unchanged;
  made["changed"] = report.changed;
  made["added"] = report.added;
  made["removed"] = report.removed;
  made["delta_bytes"] = report.delta_bytes;
  made["skipped_tensors"] = report.skipped_tensors;
  made["skipped_objects"] = report.skipped_objects;
  return made;
}

reader_pointer open_over(const py::str& base, const py::str& path, std::int64_t limit_factor, const py::object& end) {
  const std::string old = bytes_of(base), file = bytes_of(path);
  open_options how{.limits = read_limits{}.times(limit_factor)};
  how.within = to_limit(end);
  auto opened = waited(py::none(), [&](watch&) {
    auto made = open_checkpoint(old, how);
    if (made) made = open_delta(*std::move(made), file, how);
    return made;
  });
  return reader_pointer(value_of(std::move(opened)));
}

}  // namespace

void add_deltas(py::module_& native) {
  native.def("save_delta", &write_delta, py::arg("base"), py::arg("next"), py::arg("path"), py::arg("options"));
  native.def("open_delta", &open_over, py::arg("base"), py::arg("path"), py::arg("limit_factor"), py::arg("end"));
}

}  // namespace bindings
