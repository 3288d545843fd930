// SPDX-License-Identifier: Apache-2.0
// The control: correct use of everything that the other files misuse. Without it, they could all fail for a typo.
// expect: compiles
#include <shardmesh/adapter.hpp>

#include <cstdint>
#include <utility>

import shardmesh.core;
import shardmesh.layout;

struct my_tensor {
  float* data;
  std::int64_t length;
};
template <>
struct shardmesh::adapter<my_tensor> {
  static tensor_view view(const my_tensor& t) {
    return {reinterpret_cast<std::byte*>(t.data), dtype::float32, device{}, {t.length}, {1}};
  }
  static my_tensor allocate(dtype, const extents&, device) { return {}; }
};

std::int64_t length_of(shardmesh::local_tensor auto& tensor) {
  return shardmesh::adapter<my_tensor>::view(tensor).sizes[0];
}
shardmesh::result<int> half(int value) {
  if (value % 2 != 0) return shardmesh::fail(shardmesh::errc::invalid_argument, "odd");
  return value / 2;
}

int main() {
  my_tensor tensor{};
  static_assert(shardmesh::allocatable_tensor<my_tensor>);
  const auto halved = half(4);
  auto made = shardmesh::host_tensor::make(shardmesh::dtype::float32, {2});
  shardmesh::host_tensor moved = std::move(made).value();
  shardmesh::distribution().fragments_of(0, [](const shardmesh::fragment&) { return true; });
  return static_cast<int>(length_of(tensor)) + *halved + static_cast<int>(moved.bytes().size());
}
