// SPDX-License-Identifier: Apache-2.0
// stored_bytes: the size of a tensor, as every summary, report, and document states it.
export module shardmesh.checkpoint:stored_bytes;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

export namespace shardmesh {

/// Returns the size of the whole tensor's elements in bytes. For a tensor whose dtype shardmesh lacks (quantized),
/// returns the size of its stored chunks, which are archives. Returns 0 where the checkpoint states neither (a wrapping
/// tensor inside a .pt file), and for a shape whose bytes do not fit in 64 bits.
std::int64_t bytes_of(const catalog& contents, const tensor_entry& tensor);

}  // namespace shardmesh
