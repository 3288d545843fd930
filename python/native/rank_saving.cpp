// SPDX-License-Identifier: Apache-2.0
#include "rank_saving.hpp"

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "errors.hpp"
#include "saving_options.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.mapping;
import shardmesh.torch_file;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

// The state of a rank that cannot make its part.
struct refused_state {
  error why;
};

inline result<const_local_state> local_view(const refused_state& state) {
  return state.why;
}

namespace {

const_local_state_tensor tensor_of(const py::sequence& given) {
  const_local_state_tensor made{to_path(given[0]), to_extents(given[1]), to_dtype(given[2]), {}, {}};
  for (const py::handle handle : given[3]) {
    const auto part = py::reinterpret_borrow<py::sequence>(handle);
    const tensor_view view = to_view(part[1]);
    made.parts.push_back({{to_extents(part[0]), view.sizes}, view});
  }
  return made;
}

local_state_object object_of(const py::sequence& given) {
  const std::string_view archive = py::reinterpret_borrow<py::bytes>(given[1]);
  local_state_object made = value_of(torch_file::object_of_archive(std::as_bytes(std::span(archive))));
  made.where = to_path(given[0]);
  return made;
}

const_local_state state_of(const py::sequence& tensors, const py::sequence& objects) {
  const_local_state held;
  for (const py::handle one : tensors) held.tensors.push_back(tensor_of(py::reinterpret_borrow<py::sequence>(one)));
  for (const py::handle one : objects) held.objects.push_back(object_of(py::reinterpret_borrow<py::sequence>(one)));
  return held;
}

rank_save_options options_of(const py::dict& given) {
  const plain_saving saving(given);
  rank_save_options made;
  made.overwrite = saving.overwrite;
  made.threads = saving.threads;
  if (saving.memory_bytes > 0) made.memory_bytes = saving.memory_bytes;
  made.previous = bytes_of(given["previous"]);
  made.within = saving.within;
  if (!given["plan_cache"].is_none()) made.plans = given["plan_cache"].cast<const save_plan_cache&>();
  return made;
}

void watch_with(rank_save_options& options, watch& watching) {
  options.cancel = watching.stop.get_token();
  options.progress = watching.progress();
  options.hooks.before_commit = watching.before_commit();
}

}  // namespace

py::dict save_by_ranks(communicator_ref comm, const py::sequence& tensors, const py::sequence& objects,
                       const py::dict& given) {
  const const_local_state held = state_of(tensors, objects);
  const std::string destination = bytes_of(given["destination"]);
  rank_save_options options = options_of(given);
  options.lowest_rank_objects = true;  // PyTorch's planner also writes the value of one rank
  return told(waited(given["report"], [&](watch& watching) {
    watch_with(options, watching);
    return save(destination, held, comm, options);
  }));
}

py::dict save_mapped_by_ranks(communicator_ref comm, const chosen_mapping& mapping, const py::sequence& tensors,
                              const py::sequence& objects, const py::dict& given) {
  const const_local_state held = state_of(tensors, objects);
  const std::string destination = bytes_of(given["destination"]);
  rank_save_options options = options_of(given);
  return told(waited(given["report"], [&](watch& watching) {
    watch_with(options, watching);
    return save_mapped(destination, held, mapping.mappings, mapping.sizes, comm, options);
  }));
}

result<void> refuse_save(communicator_ref comm, const error& why, const std::stop_token& cancel) {
  rank_save_options options;
  options.cancel = cancel;
  auto saved = save(std::filesystem::path(), refused_state{why}, comm, options);
  if (!saved) return std::move(saved).error();
  return {};
}

}  // namespace bindings
