// SPDX-License-Identifier: Apache-2.0
// What all calls that write have in common: their options and their report.
#pragma once
#include <pybind11/pybind11.h>

#include "waiting.hpp"

import shardmesh;

namespace bindings {

/// "dcp", "safetensors", "hf", "pt" or "torch-checkpointing". Raises invalid_argument.
shardmesh::target_format to_format(const pybind11::handle& name);

/// `overwrite`, `threads`, `memory_bytes` of the dict, and the watch's cancellation and progress. Called without the
/// interpreter's lock: `plain_saving` read the dict before.
struct plain_saving {
  bool overwrite = false;
  int threads = 0;
  std::int64_t memory_bytes = 0;
  explicit plain_saving(const pybind11::dict& given);
  shardmesh::save_options with(watch& watching) const;
};

/// Whether "payload" asks for safetensors files ("torch": no). Raises invalid_argument.
bool wants_safetensors_files(const pybind11::dict& given);

/// The report as a dict; raises its problems.
pybind11::dict told(const shardmesh::save_report& report);

}  // namespace bindings
