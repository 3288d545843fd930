// SPDX-License-Identifier: Apache-2.0
// tensor_view: the one thing shardmesh knows about any framework's tensor.
#pragma once
#include <shardmesh/device.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>

#include <cstddef>

namespace shardmesh {

/// A tensor's memory, not owned. `sizes` and `strides` are in elements and of equal rank; strides may be 0 or negative;
/// `data` points at the element with index 0 in every dimension.
struct tensor_view {
  std::byte* data = nullptr;
  dtype type = dtype::undefined;
  device where{};
  extents sizes{};
  extents strides{};
};

}  // namespace shardmesh
