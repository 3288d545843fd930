// SPDX-License-Identifier: Apache-2.0
// A tensor of another framework that claims to be in device memory, counts writes into it, and may not be plain memory
// at all ("conjugated"). Its adapter has every optional member, including `check`, which needs `result` and so is in
// far_tensor_adapter. Include before imports.
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
