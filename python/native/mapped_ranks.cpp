// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "mapped_ranks.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.mapping;
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

}  // namespace bindings
