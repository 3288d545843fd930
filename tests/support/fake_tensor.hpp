// SPDX-License-Identifier: Apache-2.0
// A tensor of another framework, for tests, with any properties, strides, and device. The object owns its memory.
// Include before imports.
#pragma once
#include <shardmesh/adapter.hpp>
#include <shardmesh/tensor_properties.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

struct fake_tensor {
  shardmesh::extents sizes, strides;
  shardmesh::tensor_properties properties;
  shardmesh::device where{};
  std::shared_ptr<std::vector<std::byte>> memory;

  /// A row-major tensor with `item` bytes per element.
  static fake_tensor make(const shardmesh::extents& sizes, shardmesh::tensor_properties properties = {},
                          std::size_t item = 4) {
    fake_tensor made{sizes, shardmesh::extents::filled(sizes.rank(), 1), properties, {}, nullptr};
    std::int64_t volume = 1;
    for (std::size_t d = sizes.rank(); d-- > 0;) {
      made.strides[d] = volume;
      volume *= sizes[d] > 1 ? sizes[d] : 1;
    }
    bool empty = false;
    for (const std::int64_t n : sizes) empty = empty || n == 0;
    if (volume < (1 << 24))
      made.memory = std::make_shared<std::vector<std::byte>>(empty ? 0 : static_cast<std::size_t>(volume) * item);
    return made;
  }
};

template <>
struct shardmesh::adapter<fake_tensor> {
  static tensor_view view(const fake_tensor& t) {
    return {t.memory ? t.memory->data() : nullptr, t.properties.type, t.where, t.sizes, t.strides};
  }
  static tensor_properties properties(const fake_tensor& t) { return t.properties; }
};
