// SPDX-License-Identifier: Apache-2.0
// Not exported: finds the range of bytes that a box of a stored tensor covers, and copies elements from it to memory.
module shardmesh.checkpoint_core:box_ranges;

import shardmesh.std;
import shardmesh.core;
import :stored_tensor;

namespace shardmesh {

// The byte range from the first to the last element of a strided part: [first, first + length) within the storage.
struct covering {
  std::int64_t first = 0, length = 0;  // bytes
};
covering cover(const stored_tensor& tensor, const box& part);

// Returns the dimension with the largest stride in the source, of those in which the part has several indices.
// Precondition: the part has two elements or more.
std::size_t outermost(const stored_tensor& tensor, const box& part);

bool is_row_major(const stored_tensor& tensor, const box& part);

// Returns whether the stored bytes need no conversion for `to`: no cast, no change of the byte order, and none of
// PyTorch's lazy bits (see `stored_tensor`).
bool is_plain(const stored_tensor& tensor, const tensor_view& to);

// Copies a part out of `staged`, which holds the part's covering range. Converts the bytes in `staged` first, in place.
result<void> copy_staged(const stored_tensor& tensor, std::span<std::byte> staged, const box& part,
                         const tensor_view& to);

}  // namespace shardmesh
