// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "mapped_ranks.hpp"
#include "saving_options.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.mapping;
import shardmesh.torch_file;
import shardmesh.transfer;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

template <tensor_view_type View>
std::vector<basic_named_side<View>> sides_of(const py::sequence& tensors) {
  std::vector<basic_named_side<View>> made;
  made.reserve(tensors.size());
  for (const py::handle handle : tensors) {
    const auto given = py::reinterpret_borrow<py::sequence>(handle);
    basic_named_side<View>& side = made.emplace_back();
    side.key = bytes_of(given[0]);
    side.side.where = given[1].cast<const distribution&>();
    side.side.type = to_dtype(given[2]);
    for (const py::handle memory : given[3]) side.side.memory.slots.push_back(to_view(memory));
  }
  return made;
}

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

}  // namespace

py::tuple move_mapped(communicator_ref comm, plan_cache& plans, const chosen_mapping& mapping, const py::sequence& from,
                      const py::sequence& to, const py::dict& given) {
  const std::vector<named_source> sources = sides_of<const_tensor_view>(from);
  const std::vector<named_target> targets = sides_of<tensor_view>(to);
  redistribute_options options;
  options.memory_bytes = given["memory_bytes"].cast<std::int64_t>();
  options.allow_narrowing = given["allow_narrowing"].cast<bool>();
  options.cache = &plans;
  if (!given["seconds"].is_none()) options.call.within = std::chrono::duration<double>(given["seconds"].cast<double>());
  const auto done = waited(given["report"], [&](watch& watching) {
    options.call.cancel = watching.stop.get_token();
    options.progress = watching.progress();
    return redistribute(sources, targets, mapping.mappings, mapping.sizes, comm, options);
  });
  if (!done) raise(done.error());
  return py::make_tuple(done->sent_bytes, done->received_bytes, done->rounds, done->scratch_bytes);
}

py::dict save_mapped_by_ranks(communicator_ref comm, const chosen_mapping& mapping, const py::sequence& tensors,
                              const py::sequence& objects, const py::dict& given) {
  const_local_state held;
  for (const py::handle one : tensors) held.tensors.push_back(tensor_of(py::reinterpret_borrow<py::sequence>(one)));
  for (const py::handle one : objects) held.objects.push_back(object_of(py::reinterpret_borrow<py::sequence>(one)));
  const std::string destination = bytes_of(given["destination"]);
  const plain_saving saving(given);
  rank_save_options options;
  options.overwrite = saving.overwrite;
  options.threads = saving.threads;
  if (saving.memory_bytes > 0) options.memory_bytes = saving.memory_bytes;
  options.previous = bytes_of(given["previous"]);
  options.within = saving.within;
  return told(waited(given["report"], [&](watch& watching) {
    options.cancel = watching.stop.get_token();
    options.progress = watching.progress();
    options.hooks.before_commit = watching.before_commit();
    return save_mapped(destination, held, mapping.mappings, mapping.sizes, comm, options);
  }));
}

}  // namespace bindings
