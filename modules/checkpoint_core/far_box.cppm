// SPDX-License-Identifier: Apache-2.0
// Not exported: reads a box of a tensor from a source on a server, in few requests that run at the same time.
module shardmesh.checkpoint_core:far_box;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :stored_tensor;

namespace shardmesh {

// Reads through gaps that cost less than a request (`byte_source::bytes_per_request`), and requests the other runs
// together. Runs that are contiguous on both sides go straight to `to`. Others are staged, in at most
// `options.staging_bytes` of memory, but never in less than 16 MiB.
// Precondition: the box lies within the tensor, whose type has whole bytes.
result<void> read_far_box(const byte_source& source, const stored_tensor& tensor, const box& part,
                          const tensor_view& to, const read_options& options);

}  // namespace shardmesh
