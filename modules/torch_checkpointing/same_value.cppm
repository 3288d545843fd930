// SPDX-License-Identifier: Apache-2.0
// Not exported: whether entries of two ranks' files are the same.
module shardmesh.torch_checkpointing:same_value;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh::torch_checkpointing {

// Whether two tensors without a description are one: dtype, shape and elements. Elements are compared by their files'
// CRC-32 where both have one that was stored over the same layout, and read otherwise, and always below a MiB.
result<bool> same_tensor(checkpoint_reader& a, const tensor_entry& of_a, checkpoint_reader& b,
                         const tensor_entry& of_b);

// The same by checksums alone: nothing where they cannot tell.
result<std::optional<bool>> same_by_checksum(checkpoint_reader& a, const tensor_entry& of_a, checkpoint_reader& b,
                                             const tensor_entry& of_b);

// Whether two objects are the same value: same types, numbers and storages.
result<bool> same_object(checkpoint_reader& a, std::size_t of_a, checkpoint_reader& b, std::size_t of_b);

}  // namespace shardmesh::torch_checkpointing
