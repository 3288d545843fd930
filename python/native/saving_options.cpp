// SPDX-License-Identifier: Apache-2.0
#include "saving_options.hpp"

#include <cstdint>
#include <string>

#include "errors.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

target_format to_format(const py::handle& name) {
  const std::string spelled = bytes_of(name);
  if (const target* const format = find_target(spelled)) return format->format;
  raise(fail(errc::invalid_argument, "unknown format to write").with_values(target_names(), spelled));
}

payload_kind to_payload(const py::handle& name) {
  const std::string spelled = bytes_of(name);
  if (spelled != "torch" && spelled != "safetensors")
    raise(fail(errc::invalid_argument, "unknown payload of torch-checkpointing")
              .with_values("torch or safetensors", spelled));
  return spelled == "safetensors" ? payload_kind::safetensors : payload_kind::torch;
}

plain_saving::plain_saving(const py::dict& given)
    : overwrite(given["overwrite"].cast<bool>()),
      threads(given["threads"].cast<int>()),
      memory_bytes(given["memory_bytes"].cast<std::int64_t>()),
      within(to_limit(given["end"])) {}

save_options plain_saving::with(watch& watching) const {
  save_options made;
  made.overwrite = overwrite;
  made.threads = threads;
  if (memory_bytes > 0) made.memory_bytes = memory_bytes;
  made.within = within;
  made.cancel = watching.stop.get_token();
  made.progress = watching.progress();
  made.hooks.before_commit = watching.before_commit();
  return made;
}

py::dict told(const result<save_report>& saved) {
  if (!saved) raise(saved.error());
  const save_report& report = *saved;
  py::list notes;
  for (const std::string& note : report.notes) notes.append(text(note));
  py::dict made;
  made["notes"] = notes;
  made["tensors"] = report.tensors;
  made["bytes"] = report.bytes;
  made["objects"] = report.objects;
  made["files"] = report.files;
  made["skipped_tensors"] = report.skipped_tensors;
  made["skipped_objects"] = report.skipped_objects;
  made["excluded"] = report.excluded;
  made["referred_bytes"] = report.referred_bytes;
  return made;
}

}  // namespace bindings
