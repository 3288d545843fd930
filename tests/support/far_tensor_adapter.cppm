// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.far_tensor: the adapter of far_tensor (far_tensor.hpp). Tests only.
module;
#include <cstddef>
#include <far_tensor.hpp>

export module shardmesh.test.far_tensor;

import shardmesh.core;

export template <>
struct shardmesh::adapter<far_tensor> {
  static tensor_view view(far_tensor& t) {
    return {t.memory.data(), t.type, t.where, t.sizes, contiguous_strides(t.sizes)};
  }
  static const_tensor_view view(const far_tensor& t) {
    return {t.memory.data(), t.type, t.where, t.sizes, contiguous_strides(t.sizes)};
  }
  static far_tensor allocate(dtype type, const extents& sizes, device where) {
    far_tensor made{{}, type, where, sizes};
    made.memory.resize(static_cast<std::size_t>(numel(sizes) * item_bytes(type)));
    return made;
  }
  static result<void> check(const far_tensor& t) {
    if (t.is_conjugated)
      return fail(errc::unsupported, "the tensor is lazily conjugated").with_hint("resolve it first");
    return {};
  }
  static void written(far_tensor& t) { ++t.writes; }
};
static_assert(shardmesh::allocatable_tensor<far_tensor> && shardmesh::counts_writes<far_tensor>);
