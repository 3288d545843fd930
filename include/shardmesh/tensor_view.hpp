// SPDX-License-Identifier: Apache-2.0
// `tensor_view` and `const_tensor_view`: all that shardmesh knows about any framework's tensor.
#pragma once
#include <shardmesh/device.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>

#include <cstddef>

namespace shardmesh {

/// The memory of a tensor, read-only and not owned. `sizes` and `strides` are in elements and of equal rank; strides
/// may be 0 or negative; `data` points to the element with index 0 in every dimension. Functions take it as a source.
struct const_tensor_view {
  const std::byte* data = nullptr;
  dtype type = dtype::undefined;
  device where{};
  extents sizes{};
  extents strides{};
};

/// The same for writable memory: functions take it as a destination. It converts to `const_tensor_view`, but not back.
struct tensor_view {
  std::byte* data = nullptr;
  dtype type = dtype::undefined;
  device where{};
  extents sizes{};
  extents strides{};

  constexpr operator const_tensor_view() const { return {data, type, where, sizes, strides}; }  // NOLINT: implicit
};

}  // namespace shardmesh
