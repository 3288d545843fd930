// SPDX-License-Identifier: Apache-2.0
// The options and the report that all calls that write have in common.
#pragma once
#include <pybind11/pybind11.h>

#include "waiting.hpp"

import shardmesh;

namespace bindings {

/// "dcp", "safetensors", "hf", "pt" or "torch-checkpointing". Raises invalid_argument.
shardmesh::target_format to_format(const pybind11::handle& name);

/// `overwrite`, `threads`, `memory_bytes`, and `end` (see `to_limit`) of the dict, with the watch's cancellation and
/// progress. The constructor reads the dict; the rest runs without the interpreter's lock.
struct plain_saving {
  bool overwrite = false;
  int threads = 0;
  std::int64_t memory_bytes = 0;
  shardmesh::time_limit within{};
  explicit plain_saving(const pybind11::dict& given);
  shardmesh::save_options with(watch& watching) const;
};

/// The rules of a selection in the dict. Raises the error of a wrong rule, which names the option.
shardmesh::selection_options to_selection(const pybind11::dict& options);

/// "torch" or "safetensors". Raises invalid_argument.
shardmesh::payload_kind to_payload(const pybind11::handle& name);

/// Returns the report as a dict, or raises the error.
pybind11::dict told(const shardmesh::result<shardmesh::save_report>& saved);

}  // namespace bindings
