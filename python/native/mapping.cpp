// SPDX-License-Identifier: Apache-2.0
// Tensors in place in a checkpoint's files. Their memory is a flat, read-only buffer of bytes; the mapping lives as
// long as Python holds the buffer. Python makes arrays from it (_mapped.py).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "errors.hpp"
#include "interpreter.hpp"
#include "module.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.checkpoint;
import shardmesh.core;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

using reader_pointer = std::shared_ptr<checkpoint_reader>;

// The map of a reader; it keeps the reader alive.
class reader_map {
 public:
  static std::unique_ptr<reader_map> make(const reader_pointer& reader, bool allow_unaligned) {
    return std::make_unique<reader_map>(reader, allow_unaligned);
  }
  reader_map(reader_pointer reader, bool allow_unaligned)
      : reader_(std::move(reader)), tensors_(*reader_, {.allow_unaligned = allow_unaligned}) {}

  // where: None, or (offsets, sizes).
  mapped_tensor tensor(const py::str& key, const py::object& where) {
    const std::string name = bytes_of(key);
    const bool is_whole = where.is_none();
    const box wanted = is_whole ? box{} : to_box(where);
    auto mapped = [&] {
      const released unlocked;
      return is_whole ? tensors_.tensor(name) : tensors_.tensor(name, wanted);
    }();
    return value_of(std::move(mapped));
  }

 private:
  reader_pointer reader_;
  tensor_map tensors_;
};

// From the first element to the last, gaps included. Strides in files are never negative.
std::int64_t span_bytes(const const_tensor_view& view) {
  if (box::whole(view.sizes).is_empty()) return 0;
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < view.sizes.rank(); ++d) elements += (view.sizes[d] - 1) * view.strides[d];
  return (elements * bits(view.type) + 7) / 8;
}

py::buffer_info buffer_of(const mapped_tensor& mapped) {
  auto* const data = const_cast<std::byte*>(static_cast<const std::byte*>(mapped.view().data));
  return {data, 1, py::format_descriptor<std::uint8_t>::format(), 1, {span_bytes(mapped.view())}, {1}, true};
}

}  // namespace

void add_mapping(py::module_& native) {
  py::class_<mapped_tensor>(native, "MappedMemory", py::buffer_protocol())
      .def_buffer([](const mapped_tensor& mapped) { return buffer_of(mapped); })
      .def_property_readonly("dtype", [](const mapped_tensor& mapped) { return text(name(mapped.view().type)); })
      .def_property_readonly("shape", [](const mapped_tensor& mapped) { return to_python(mapped.view().sizes); })
      .def_property_readonly("strides", [](const mapped_tensor& mapped) { return to_python(mapped.view().strides); })
      .def_property_readonly(
          "address", [](const mapped_tensor& mapped) { return reinterpret_cast<std::uintptr_t>(mapped.view().data); })
      .def("check", [](const mapped_tensor& mapped) { check(mapped.check()); });
  py::class_<reader_map>(native, "TensorMap")
      .def_static("make", &reader_map::make, py::arg("checkpoint"), py::arg("allow_unaligned"))
      .def("tensor", &reader_map::tensor, py::arg("key"), py::arg("where").none(true));
}

}  // namespace bindings
