// SPDX-License-Identifier: Apache-2.0
// Two tensors for tests: one copyable with properties, one move-only. Both hold int64 in host memory.
#pragma once
#include <shardmesh/adapter.hpp>
#include <shardmesh/tensor_properties.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace test {

inline shardmesh::extents row_major(const shardmesh::extents& sizes) {
  shardmesh::extents strides = shardmesh::extents::filled(sizes.rank(), 1);
  for (std::size_t d = sizes.rank(); d-- > 1;) strides[d - 1] = strides[d] * (sizes[d] == 0 ? 1 : sizes[d]);
  return strides;
}

inline std::int64_t count_of(const shardmesh::extents& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

struct array_tensor {
  shardmesh::extents sizes;
  std::vector<std::int64_t> values;
  bool requires_grad = false;
  shardmesh::dtype type = shardmesh::dtype::int64;  // a test may claim another type of 8 bytes
  shardmesh::device where{};

  static array_tensor filled(const shardmesh::extents& sizes, std::int64_t value = 0) {
    return {sizes, std::vector<std::int64_t>(static_cast<std::size_t>(count_of(sizes)), value)};
  }
};

struct unique_tensor {
  std::unique_ptr<array_tensor> held;
};

}  // namespace test

template <>
struct shardmesh::adapter<test::array_tensor> {
  static tensor_view view(test::array_tensor& t) {
    return {reinterpret_cast<std::byte*>(t.values.data()), t.type, t.where, t.sizes, test::row_major(t.sizes)};
  }
  static const_tensor_view view(const test::array_tensor& t) {
    return {reinterpret_cast<const std::byte*>(t.values.data()), t.type, t.where, t.sizes, test::row_major(t.sizes)};
  }
  static test::array_tensor allocate(dtype type, const extents& sizes, device where) {
    test::array_tensor made = test::array_tensor::filled(sizes);
    made.type = type;
    made.where = where;
    return made;
  }
  static tensor_properties properties(const test::array_tensor& t) {
    tensor_properties p;
    p.type = t.type;
    p.requires_grad = t.requires_grad;
    return p;
  }
};

template <>
struct shardmesh::adapter<test::unique_tensor> {
  static tensor_view view(const test::unique_tensor& t) { return adapter<test::array_tensor>::view(*t.held); }
};
