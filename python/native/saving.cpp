// SPDX-License-Identifier: Apache-2.0
// Saves a state dict in memory as a new checkpoint, from one process: tensors, and objects as torch.save wrote them.
// With a mapping, they are saved under other names.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conventions.hpp"
#include "errors.hpp"
#include "module.hpp"
#include "saving.hpp"
#include "saving_options.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.dcp;
import shardmesh.mapping;
import shardmesh.safetensors;
import shardmesh.torch_checkpointing;
import shardmesh.torch_file;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

// The values that the Python side keeps alive while they are saved.
struct held {
  view_source source;
  std::vector<output_tensor> tensors;
  std::vector<output_object> objects;
};

// (key, nested path, memory, requires_grad, dtype to write)
void add_tensor(held& into, const py::sequence& given) {
  output_tensor made;
  made.key = bytes_of(given[0]);
  made.where = to_path(given[1]);
  const tensor_view view = to_view(given[2]);
  made.type = to_dtype(given[4]);
  made.properties.requires_grad = given[3].cast<bool>();
  made.chunks.push_back({box::whole(view.sizes), 0});
  distribution_builder parts(view.sizes, owner_space::items);
  parts.add(0, static_cast<std::int32_t>(into.source.views.size()), extents::filled(view.sizes.rank(), 0), view.sizes);
  made.bytes.from = value_of(parts.finish());
  made.bytes.from_type = view.type;
  made.bytes.to_type = made.type;
  into.source.views.push_back(view);
  into.tensors.push_back(std::move(made));
}

// The entry of an object in objects.json.
result<std::string> json_of(std::string_view archive, const std::string& key) {
  const memory_source source(std::as_bytes(std::span(archive)), key);
  auto item = torch_file::item::open(source);
  if (!item) return std::move(item).error();
  read_budget budget;
  auto value = torch_file::describe_object(*item, item->root(), source, budget);
  if (!value) return std::move(value).error();
  return object_document(*value);
}

// (key, nested path, archive)
void add_object(held& into, const py::sequence& given) {
  output_object made;
  made.key = bytes_of(given[0]);
  made.where = to_path(given[1]);
  const std::string_view archive = py::reinterpret_borrow<py::bytes>(given[2]);
  made.archive = [archive]() -> result<std::vector<std::byte>> {
    const auto bytes = std::as_bytes(std::span(archive));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  made.json = [archive, key = made.key] { return json_of(archive, key); };
  into.objects.push_back(std::move(made));
}

py::dict save_state(const py::str& destination, const py::sequence& tensors, const py::sequence& objects,
                    const py::dict& given) {
  held state;
  for (const py::handle one : tensors) add_tensor(state, py::reinterpret_borrow<py::sequence>(one));
  for (const py::handle one : objects) add_object(state, py::reinterpret_borrow<py::sequence>(one));
  const std::string path = bytes_of(destination);
  const target_format to = to_format(given["format"]);
  target_settings settings;
  settings.metadata.save_id = bytes_of(given["save_id"]);
  settings.files.max_shard_bytes = given["max_shard_bytes"].cast<std::int64_t>();
  settings.items = {.files = to_payload(given["payload"]) == payload_kind::safetensors
                                 ? torch_checkpointing::payload::safetensors
                                 : torch_checkpointing::payload::torch,
                    .item = bytes_of(given["item"])};
  const plain_saving saving(given);
  const std::string previous = bytes_of(given["previous"]);
  if (auto allowed = check_previous(to, previous); !allowed) raise(allowed.error());
  return told(waited(given["report"], [&](watch& watching) {
    save_options options = replacing_checkpoints(saving.with(watching));
    options.previous = previous;
    return target_of(to).write(path, std::move(state.tensors), state.objects, state.source, settings, options);
  }));
}

// The same arguments, and the options of a mapping and of a selection, which applies to the new names.
py::dict save_mapped_state(const py::str& destination, const py::sequence& tensors, const py::sequence& objects,
                           const py::dict& given) {
  std::vector<save_tensor> state;
  for (const py::handle handle : tensors) {
    const auto one = py::reinterpret_borrow<py::sequence>(handle);
    const tensor_view view = to_view(one[2]);
    state.push_back({bytes_of(one[0]), to_path(one[1]), view.sizes, {{box::whole(view.sizes), view, 0}}});
  }
  held others;
  for (const py::handle one : objects) add_object(others, py::reinterpret_borrow<py::sequence>(one));
  const std::string path = bytes_of(destination);
  const mapping_choice mapping(given);
  convert_options options;
  options.format = to_format(given["format"]);
  options.selection = to_selection(given);
  options.max_shard_bytes = given["max_shard_bytes"].cast<std::int64_t>();
  options.skip_objects = given["skip_objects"].cast<bool>();
  options.payload = to_payload(given["payload"]);
  options.item = bytes_of(given["item"]);
  const plain_saving saving(given);
  return told(waited(given["report"], [&](watch& watching) -> result<save_report> {
    SHARDMESH_TRY(const std::vector<mapping_rules> mappings, mapping.mappings());
    SHARDMESH_TRY(const model_sizes sizes, mapping.sizes(""));
    set_saving(options, saving.with(watching));
    return save_mapped(path, state, others.objects, mappings, sizes, options);
  }));
}

}  // namespace

void add_saving(py::module_& native) {
  native.def("save", &save_state, py::arg("destination"), py::arg("tensors"), py::arg("objects"), py::arg("options"));
  native.def("save_mapped", &save_mapped_state, py::arg("destination"), py::arg("tensors"), py::arg("objects"),
             py::arg("options"));
}

}  // namespace bindings
