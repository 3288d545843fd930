// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "code_names.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.checkpoint;

namespace bindings {
namespace py = pybind11;
using namespace shardmesh;

namespace {

[[noreturn]] void set_and_leave(const py::object& exception) {
  PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
  throw py::error_already_set();
}

}  // namespace

py::str text(std::string_view bytes) {
  PyObject* made = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

std::string bytes_of(const py::handle& text) {
  const auto encoded =
      py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (encoded) return encoded;
  if (PyErr_ExceptionMatches(PyExc_UnicodeError) == 0) throw py::error_already_set();
  PyErr_Clear();
  const auto spelled = py::reinterpret_steal<py::str>(PyObject_ASCII(text.ptr()));
  if (!spelled) throw py::error_already_set();
  raise(fail(errc::invalid_argument, "a text holds a lone surrogate, which UTF-8 cannot encode")
            .with_values("valid Unicode", std::string(spelled)));
}

namespace {

// A problem without others.
py::object one_to_python(const error& e) {
  py::tuple ranks(e.ranks.size());
  for (std::size_t i = 0; i < e.ranks.size(); ++i) ranks[i] = e.ranks[i];
  py::tuple boxes(e.boxes.size());
  for (std::size_t i = 0; i < e.boxes.size(); ++i) boxes[i] = to_python(e.boxes[i]);
  return py::module_::import("shardmesh._error")
      .attr("Error")(text(code_names[static_cast<std::size_t>(e.code)]), text(to_string(e)),
                     py::arg("message") = text(e.message), py::arg("key") = text(e.key), py::arg("path") = text(e.file),
                     py::arg("ranks") = ranks, py::arg("boxes") = boxes, py::arg("expected") = text(e.expected),
                     py::arg("found") = text(e.found), py::arg("hint") = text(e.hint), py::arg("errno") = e.sys);
}

// A code that another version of the package has named is unsupported.
errc code_named(std::string_view name) {
  const auto found = std::ranges::find(code_names, name);
  return found == code_names.end() || *found == code_names.front() ? errc::unsupported
                                                                   : static_cast<errc>(found - code_names.begin());
}

// Surrogates that no file name has are spelled out: an error about such a text must arrive too.
std::string encoded(const py::handle& text) {
  for (const char* surrogates : {"surrogateescape", "backslashreplace"}) {
    const auto made = py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", surrogates));
    if (made) return made;
    if (PyErr_ExceptionMatches(PyExc_UnicodeError) == 0) throw py::error_already_set();
    PyErr_Clear();
  }
  return {};
}

// A problem without others.
error one_from_python(const py::handle& problem) {
  const auto field = [&](const char* name) { return encoded(problem.attr(name)); };
  error made = fail(code_named(field("code")), field("message"));
  made.key = field("key");
  made.file = field("path");
  made.expected = field("expected");
  made.found = field("found");
  made.hint = field("hint");
  made.sys = problem.attr("errno").cast<int>();
  for (const py::handle rank : problem.attr("ranks")) made.ranks.push_back(rank.cast<std::int32_t>());
  for (const py::handle pair : problem.attr("boxes")) made.boxes.push_back(to_box(pair));
  return made;
}

}  // namespace

error from_python(const py::handle& problem) {
  error made = one_from_python(problem);
  for (const py::handle other : problem.attr("others")) made.others.push_back(one_from_python(other));
  return made;
}

py::object to_python(const error& e) {
  const std::vector<error> problems = e.problems();
  py::object made = one_to_python(problems.front());
  py::tuple others(problems.size() - 1);
  for (std::size_t i = 0; i < others.size(); ++i) others[i] = one_to_python(problems[i + 1]);
  made.attr("others") = others;
  return made;
}

py::list to_python(const std::vector<error>& errors) {
  py::list made;
  for (const error& e : errors) made.append(to_python(e));
  return made;
}

void raise(const error& e) {
  set_and_leave(to_python(e));
}

}  // namespace bindings
