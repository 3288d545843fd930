// SPDX-License-Identifier: Apache-2.0
// A tensor of some other framework that says that its memory is a device's, counts what was written into it, and may be
// no plain memory at all ("conjugated"): its adapter has everything that an adapter may have but `check`, which needs
// `result` (far_tensor_adapter). Include before imports.
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

struct far_tensor {
  std::vector<std::byte> memory;
  shardmesh::dtype type = shardmesh::dtype::float32;
  shardmesh::device where{};
  shardmesh::extents sizes{};
  bool is_conjugated = false;
  int writes = 0;
};
