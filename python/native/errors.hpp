// SPDX-License-Identifier: Apache-2.0
// Converts our errors to Python exceptions (shardmesh.Error, which python/shardmesh/_error.py defines).
#pragma once
#include <pybind11/pybind11.h>

#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.checkpoint;

namespace bindings {

/// Returns a str. Bytes that are not UTF-8, which keys and paths may contain, become Python's surrogate escapes.
pybind11::str text(std::string_view bytes);
/// The reverse of `text`. Raises invalid_argument for other surrogates.
std::string bytes_of(const pybind11::handle& text);

/// Returns a shardmesh.Error with the error's fields and its text. The exception's `others` holds the error's further
/// problems.
pybind11::object to_python(const shardmesh::error& e);
pybind11::list to_python(const std::vector<shardmesh::error>& errors);
/// The reverse of `to_python`: an error with the fields of a shardmesh.Error and its others.
shardmesh::error from_python(const pybind11::handle& problem);

/// Throws the error as a Python exception.
[[noreturn]] void raise(const shardmesh::error& e);

/// Returns the value, or throws its error as a Python exception.
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
