// SPDX-License-Identifier: Apache-2.0
// Small values between Python and C++: shapes, boxes, paths of nested keys, and the memory of a tensor. Memory crosses
// as (address, dtype, sizes, strides); the caller keeps the tensor alive.
#pragma once
#include <pybind11/pybind11.h>

import shardmesh;

namespace bindings {

/// A tuple of int.
pybind11::tuple to_python(const shardmesh::extents& values);
/// shardmesh.Box(offsets, sizes).
pybind11::object to_python(const shardmesh::box& b);
/// A tuple of str and int.
pybind11::tuple to_python(const shardmesh::path& p);

/// From sequences of int. Raises rank_too_large.
shardmesh::extents to_extents(const pybind11::handle& values);
/// From (offsets, sizes). Raises shape_mismatch for sequences of different lengths.
shardmesh::box to_box(const pybind11::handle& pair);
shardmesh::path to_path(const pybind11::handle& keys);
/// From PyTorch's name of the dtype. Raises unsupported.
shardmesh::dtype to_dtype(const pybind11::handle& name);
/// From (address, dtype, sizes, strides), in elements; host memory.
shardmesh::tensor_view to_view(const pybind11::handle& memory);

}  // namespace bindings
