// SPDX-License-Identifier: Apache-2.0
// Our errors as Python exceptions (shardmesh.Error, which python/shardmesh/_error.py makes).
#pragma once
#include <pybind11/pybind11.h>

#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

import shardmesh;

namespace bindings {

/// A str. Bytes that are no UTF-8 (keys and paths may have such) come out as Python's own surrogate escapes.
pybind11::str text(std::string_view bytes);
/// The way back. Raises invalid_argument for other surrogates.
std::string bytes_of(const pybind11::handle& text);

/// An instance of shardmesh.Error with the error's fields and its text.
pybind11::object to_python(const shardmesh::error& e);
pybind11::list to_python(const std::vector<shardmesh::error>& errors);

/// Leaves to Python with the error as its exception.
[[noreturn]] void raise(const shardmesh::error& e);
/// The first of the problems, with the others in its field `others`.
[[noreturn]] void raise(const std::vector<shardmesh::error>& problems);

/// The value, or an exception in Python.
template <class T>
  requires std::is_object_v<T>
T value_of(shardmesh::result<T> made) {
  if (!made) raise(made.error());
  return *std::move(made);
}
inline void check(const shardmesh::result<void>& done) {
  if (!done) raise(done.error());
}

}  // namespace bindings
