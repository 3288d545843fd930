// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
module shardmesh.state;

namespace shardmesh::detail {

result<tensor_view> part_of(const tensor_view& memory, const box& inside) {
  if (inside == box::whole(memory.sizes)) return memory;
  if (bits(memory.type) % 8 != 0) return fail(errc::unsupported, "a tensor of elements smaller than a byte is cut");
  return subview(memory, inside);
}

}  // namespace shardmesh::detail
