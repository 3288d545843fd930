// SPDX-License-Identifier: Apache-2.0
// tensor_view and const_tensor_view: the one thing shardmesh knows about any framework's tensor.
#pragma once
#include <shardmesh/device.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>

#include <cstddef>

namespace shardmesh {

/// A tensor's memory that is only read, not owned. `sizes` and `strides` are in elements and of equal rank; strides may
/// be 0 or negative; `data` points at the element with index 0 in every dimension. What functions take as a source.
struct const_tensor_view {
  const std::byte* data = nullptr;
  dtype type = dtype::undefined;
  device where{};
  extents sizes{};
  extents strides{};
};

/// The same of memory that may be written: what functions take as a destination. It is given as it is where something
/// is only read; there is no way back.
struct tensor_view {
  std::byte* data = nullptr;
  dtype type = dtype::undefined;
  device where{};
  extents sizes{};
  extents strides{};

  constexpr operator const_tensor_view() const { return {data, type, where, sizes, strides}; }  // NOLINT: implicit
};

}  // namespace shardmesh
