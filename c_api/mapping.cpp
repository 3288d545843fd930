// SPDX-License-Identifier: Apache-2.0
#include <shardmesh/c_api/mapping.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "checkpoint.hpp"
#include "values.hpp"

import shardmesh;
import shardmesh.core;

struct shardmesh_mapped {
  using mark_type = c_api::marked<c_api::handle_kind::mapped>;
  mark_type mark;
  shardmesh::mapped_tensor tensor;
  explicit shardmesh_mapped(shardmesh::mapped_tensor made) : tensor(std::move(made)) {}
};

namespace c_api {
using namespace shardmesh;

namespace {

// Strides in files are never negative.
std::int64_t span_bytes(const const_tensor_view& view) {
  if (box::whole(view.sizes).is_empty()) return 0;
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < view.sizes.rank(); ++d) elements += (view.sizes[d] - 1) * view.strides[d];
  return (elements * bits(view.type) + 7) / 8;
}

mapped_tensor map(tensor_map& tensors, std::string_view key, const shardmesh_map_options& options) {
  if (options.offsets == nullptr && options.sizes == nullptr) return value_of(tensors.tensor(key));
  const box where{to_sizes(options.offsets, options.rank, "offsets of a box"),
                  to_sizes(options.sizes, options.rank, "sizes of a box")};
  return value_of(tensors.tensor(key, where));
}

}  // namespace

}  // namespace c_api

using namespace c_api;

extern "C" {

shardmesh_status shardmesh_map_tensor(shardmesh_checkpoint* checkpoint, const char* key, size_t key_size,
                                      const shardmesh_map_options* options, shardmesh_mapped** mapped,
                                      shardmesh_error** error) {
  return guarded(error, mapped, [&] {
    shardmesh_checkpoint& from = opened(checkpoint, "checkpoint");
    const shardmesh_map_options wanted = given(options, "options");
    const std::string_view name = to_key(key, key_size);
    const std::shared_lock shared(from.use);
    return std::make_unique<shardmesh_mapped>(
        map(wanted.allow_unaligned != 0 ? *from.unaligned_tensors : *from.tensors, name, wanted));
  });
}

shardmesh_status shardmesh_mapped_describe(const shardmesh_mapped* mapped, shardmesh_mapped_view* view,
                                           shardmesh_error** error) {
  return guarded(error, [&] {
    const shardmesh::const_tensor_view& from = opened(mapped, "mapped").tensor.view();
    shardmesh_mapped_view made{};
    made.data = from.data;
    made.byte_size = span_bytes(from);
    made.rank = static_cast<std::int64_t>(from.sizes.rank());
    copy_to(made.sizes, from.sizes);
    copy_to(made.strides, from.strides);
    made.dtype = static_cast<shardmesh_dtype>(from.type);
    give(view, made, "view");
  });
}

shardmesh_status shardmesh_mapped_check(const shardmesh_mapped* mapped, shardmesh_error** error) {
  return guarded(error, [&] { check(opened(mapped, "mapped").tensor.check()); });
}

void shardmesh_mapped_free(shardmesh_mapped* mapped) {
  delete mapped;
}

}  // extern "C"
