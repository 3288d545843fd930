// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
module shardmesh.cuda;

namespace shardmesh {

result<device_tensor> device_tensor::make(dtype type, const extents& sizes, device where, stream_ref stream) {
  SHARDMESH_TRY(const auto backend, backend_for(where));
  const auto count = checked_volume(sizes);
  if (!count) return fail(errc::overflow, "a tensor of sizes " + to_string(sizes) + " does not fit in 64 bits");
  const auto size = shardmesh::size_bytes(type, *count);
  if (!size)
    return fail(bits(type) % 8 != 0 ? errc::unaligned : errc::overflow,
                "a tensor of " + std::string(name(type)) + " of sizes " + to_string(sizes) +
                    (bits(type) % 8 != 0 ? " is not a whole number of bytes" : " does not fit in 64 bits"));
  device_tensor made;
  SHARDMESH_TRY(made.memory_, backend->allocate(*size, where, stream));
  made.type_ = type;
  made.sizes_ = sizes;
  return made;
}

}  // namespace shardmesh
