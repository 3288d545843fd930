// SPDX-License-Identifier: Apache-2.0
// stored_bytes: the size of a tensor in every summary, report and document.
export module shardmesh.checkpoint:stored_bytes;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

export namespace shardmesh {

/// Bytes of the whole tensor: of its elements; of a tensor without a dtype of ours (quantized) its stored chunks, which
/// are archives. 0 where the checkpoint says neither (a wrapping tensor inside a .pt file), and for a shape whose bytes
/// no 64 bits hold.
std::int64_t bytes_of(const catalog& contents, const tensor_entry& tensor);

}  // namespace shardmesh
