// SPDX-License-Identifier: Apache-2.0
// Not exported: compares entries of two ranks' files.
module shardmesh.torch_checkpointing:same_value;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh::torch_checkpointing {

// Returns true when two tensors without a description have equal dtypes, shapes, and elements. When both files have a
// CRC-32 over the same layout, the checksums decide. Otherwise, and to confirm equal checksums of at most one MiB, the
// elements are read.
result<bool> same_tensor(checkpoint_reader& a, const tensor_entry& of_a, checkpoint_reader& b,
                         const tensor_entry& of_b);

// Compares by checksums only; returns nothing when they cannot decide.
result<std::optional<bool>> same_by_checksum(checkpoint_reader& a, const tensor_entry& of_a, checkpoint_reader& b,
                                             const tensor_entry& of_b);

// Returns true when two objects are the same value: same types, numbers, and storages.
result<bool> same_object(checkpoint_reader& a, std::size_t of_a, checkpoint_reader& b, std::size_t of_b);

}  // namespace shardmesh::torch_checkpointing
