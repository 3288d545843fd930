// SPDX-License-Identifier: Apache-2.0
// `tensor_properties`: the common properties of a sharded tensor's parts. It is in the global module, so that an
// adapter in another framework's header can return them without `import`.
#pragma once
#include <shardmesh/dtype.hpp>

#include <cstdint>

namespace shardmesh {

/// The storage scheme of a tensor's elements. Only `strided` tensors can be sharded. Source: torch.layout.
enum class tensor_storage : std::uint8_t {
  strided,
  sparse_coo,
  sparse_csr,
  sparse_csc,
  sparse_bsr,
  sparse_bsc,
  mkldnn,
  jagged
};

/// The order of a strided tensor's dimensions in memory. Source: torch.memory_format.
enum class memory_format : std::uint8_t { contiguous, preserve, channels_last, channels_last_3d };

/// Properties that every shard of a tensor shares.
/// Source: torch.distributed._shard.sharded_tensor.metadata.TensorProperties.
struct tensor_properties {
  dtype type = dtype::float32;
  tensor_storage storage = tensor_storage::strided;  // PyTorch's `layout`
  bool requires_grad = false;
  memory_format format = memory_format::contiguous;
  bool pin_memory = false;
  friend constexpr bool operator==(const tensor_properties&, const tensor_properties&) = default;
};

}  // namespace shardmesh
