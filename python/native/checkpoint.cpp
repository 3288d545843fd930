// SPDX-License-Identifier: Apache-2.0
// One opened checkpoint: its description, its objects, and loading boxes of its tensors.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conventions.hpp"
#include "errors.hpp"
#include "interpreter.hpp"
#include "module.hpp"
#include "values.hpp"
#include "waiting.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;
import shardmesh.dcp;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

using reader_pointer = std::shared_ptr<checkpoint_reader>;

// options: limit_factor, only_keys, rank (or None), keys_at_ranks, all_parts, dequantize, block_size, check_sums (for
// dequantized and mapped tensors), end (see `to_limit`), and those of `mapping_choice`.
reader_pointer open(const py::str& path, const py::dict& given) {
  const std::string name = bytes_of(path);
  open_options how{.limits = read_limits{}.times(given["limit_factor"].cast<std::int64_t>())};
  for (const py::handle key : given["only_keys"]) how.only_keys.push_back(bytes_of(key));
  if (!given["rank"].is_none()) how.rank = given["rank"].cast<std::int32_t>();
  how.keys_at_ranks = given["keys_at_ranks"].cast<bool>();
  how.within = to_limit(given["end"]);
  const bool all_parts = given["all_parts"].cast<bool>(), dequantize = given["dequantize"].cast<bool>();
  const bool check_sums = given["check_sums"].cast<bool>();
  const dequantize_options numbers{.block_size = given["block_size"].cast<std::int64_t>(), .check_sums = check_sums};
  const mapping_choice mapping(given);
  auto opened = waited(py::none(), [&](watch&) -> result<std::unique_ptr<checkpoint_reader>> {
    const detail::call_scope limits(how.call().named("opening"));
    auto made = all_parts ? open_parts(name, how) : open_checkpoint(name, how);
    if (made && dequantize) made = dequantized(*std::move(made), numbers);
    if (made && mapping.is_given()) made = mapping.apply(*std::move(made), name, check_sums);
    if (!made) return made;
    (*made)->identify_opaque_tensors();
    if (auto checked = detail::check_current_call(); !checked) return std::move(checked).error().with_file(name);
    return made;
  });
  return reader_pointer(value_of(std::move(opened)));
}

// (key, dtype, shape, nested path, number of chunks, requires_grad, foreign type)
py::list tensors(const checkpoint_reader& reader) {
  py::list made;
  for (const tensor_entry& tensor : reader.contents().tensors)
    made.append(py::make_tuple(text(tensor.key), text(name(tensor.type)), to_python(tensor.shape),
                               to_python(tensor.where), tensor.chunk_count, tensor.properties.requires_grad,
                               text(tensor.opaque_type)));
  return made;
}

// (key, nested path)
py::list objects(const checkpoint_reader& reader) {
  py::list made;
  for (const object_entry& object : reader.contents().objects)
    made.append(py::make_tuple(text(object.key), to_python(object.where)));
  return made;
}

// The place of an item: (file, offset, length, transform); the file is "" if unknown.
py::tuple place_of(const catalog& contents, const stored_range& place) {
  const std::string_view file =
      place.file < 0 ? std::string_view() : contents.files[static_cast<std::size_t>(place.file)];
  const std::string& transform = contents.transforms[static_cast<std::size_t>(place.transform)];
  return py::make_tuple(text(file), place.offset, place.length, text(transform));
}

// The place of each object.
py::list object_places(const checkpoint_reader& reader) {
  py::list made;
  for (const object_entry& object : reader.contents().objects) made.append(place_of(reader.contents(), object.place));
  return made;
}

// The StorageMeta.save_id of a DCP folder; "" if there is none.
py::str save_id(const checkpoint_reader& reader) {
  for (const auto& [name, value] : dcp::extras_of(reader).attributes) {
    if (name != "storage_meta") continue;
    for (const auto [field, id] : value.state().pairs())
      if (field.text() == "save_id") return text(id.text().value_or(""));
  }
  return text("");
}

// (offsets, sizes, file, offset, length, transform)
py::list chunks(const checkpoint_reader& reader, std::size_t index) {
  const catalog& contents = reader.contents();
  const tensor_entry& tensor = contents.tensors.at(index);
  py::list made;
  for (std::int32_t i = tensor.first_chunk; i < tensor.first_chunk + tensor.chunk_count; ++i) {
    const box where = contents.chunk_box(tensor, i);
    const py::tuple place = place_of(contents, contents.chunk_places[static_cast<std::size_t>(i)]);
    made.append(py::make_tuple(to_python(where.offsets), to_python(where.sizes)) + place);
  }
  return made;
}

// end: see `to_limit`.
py::bytes object_archive(checkpoint_reader& reader, std::size_t index, const py::object& end) {
  const call_options call{.within = to_limit(end), .name = "load"};
  auto made = waited(py::none(), [&](watch&) {
    const detail::call_scope limits(call);
    return reader.object_archive(index);
  });
  const std::vector<std::byte> archive = value_of(std::move(made));
  return {reinterpret_cast<const char*>(archive.data()), archive.size()};
}

py::tuple object_value_of(checkpoint_reader& reader, std::size_t index) {
  auto read = waited(py::none(), [&](watch&) { return reader.read_object(index); });
  const object_value value = value_of(std::move(read));
  return py::make_tuple(text(value.kind), text(value.type), text(value.json));
}

// Reports every arrived key to Python, from the load's threads, one at a time. An exception raised by Python ends the
// load.
class arrivals {
 public:
  explicit arrivals(const py::object& told) : told_(told) {}
  bool wanted() const { return !told_.is_none(); }
  void tell(const std::string& key, watch& watching) {
    const acquired held;
    if (raised_) return;
    try {
      told_(text(key));
    } catch (...) {
      raised_ = std::current_exception();
      watching.stop.request_stop();
    }
  }
  void rethrow() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  const py::object& told_;
  std::exception_ptr raised_;
};

// requests: (key, (offsets, sizes), memory, copied_to) each; see `to_view`. copied_to: None, or the memory to which
// Python copies `memory`. Its device is not named: no other memory shares the addresses of CUDA memory. arrived: None,
// or a callable that receives each key.
std::int64_t load_boxes(const reader_pointer& reader, const py::sequence& requests, const py::dict& given,
                        const py::object& arrived, const py::object& report) {
  std::vector<load_request> wanted;
  wanted.reserve(requests.size());
  for (const py::handle request : requests) {
    const auto one = py::reinterpret_borrow<py::sequence>(request);
    wanted.push_back({bytes_of(one[0]), to_box(one[1]), to_view(one[2]), std::nullopt});
    if (!one[3].is_none()) wanted.back().copied_to = to_view(one[3]);
  }
  load_options how{.threads = given["threads"].cast<int>(),
                   .allow_narrowing = given["allow_narrowing"].cast<bool>(),
                   .allow_shape_mismatch = given["allow_shape_mismatch"].cast<bool>(),
                   .check = given["check"].cast<bool>(),
                   .within = to_limit(given["end"])};
  arrivals coming(arrived);
  const auto loaded = waited(report, [&](watch& watching) {
    how.cancel = watching.stop.get_token();
    how.progress = watching.progress();
    if (coming.wanted()) how.on_arrival = [&](const std::string& key) { coming.tell(key, watching); };
    return load(*reader, wanted, how);
  });
  coming.rethrow();
  return value_of(loaded).bytes_read;
}

// Loads a whole tensor into memory of its shape; reports a wrong shape before a byte is read.
void load_whole(const reader_pointer& reader, const py::str& key, const py::sequence& memory,
                const py::object& report) {
  const std::string name = bytes_of(key);
  const tensor_view to = to_view(memory);
  check(waited(report, [&](watch& watching) -> result<void> {
    auto done = load_into(*reader, name, to, {.allow_narrowing = true, .cancel = watching.stop.get_token()});
    if (!done) return std::move(done).error();
    return {};
  }));
}

py::list texts(const checkpoint_reader& reader) {
  py::list made;
  for (const file_text& one : reader.contents().texts) made.append(py::make_tuple(text(one.key), text(one.value)));
  return made;
}

py::list lines(const std::vector<std::string>& given) {
  py::list made;
  for (const std::string& line : given) made.append(text(line));
  return made;
}

}  // namespace

void add_checkpoint(py::module_& native) {
  py::class_<checkpoint_reader, reader_pointer>(native, "Checkpoint")
      .def_property_readonly("path", [](const checkpoint_reader& r) { return text(printable_url(r.path().native())); })
      .def_property_readonly("format", [](const checkpoint_reader& r) { return text(name(r.contents().format)); })
      .def_property_readonly("version", [](const checkpoint_reader& r) { return text(r.contents().version); })
      .def_property_readonly("files", [](const checkpoint_reader& r) { return lines(r.contents().files); })
      .def_property_readonly("tensor_bytes", [](const checkpoint_reader& r) { return r.contents().tensor_bytes(); })
      .def_property_readonly("warnings", [](const checkpoint_reader& r) { return to_python(r.warnings()); })
      .def_property_readonly("problems", [](const checkpoint_reader& r) { return to_python(r.problems()); })
      .def_property_readonly("notes", [](const checkpoint_reader& r) { return lines(r.notes()); })
      .def_property_readonly("texts", &texts)
      .def_property_readonly("save_id", &save_id)
      .def("object_places", &object_places)
      .def("tensors", &tensors)
      .def("objects", &objects)
      .def("chunks", &chunks, py::arg("tensor"))
      .def("object_archive", &object_archive, py::arg("object"), py::arg("end"))
      .def("object_value", &object_value_of, py::arg("object"))
      .def("load_whole", &load_whole, py::arg("key"), py::arg("memory"), py::arg("report"))
      .def("load", &load_boxes, py::arg("requests"), py::arg("options"), py::arg("arrived").none(true),
           py::arg("report"));
  native.def("open", &open, py::arg("path"), py::arg("options"));
}

}  // namespace bindings
