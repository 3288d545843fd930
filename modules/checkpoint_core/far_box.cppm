// SPDX-License-Identifier: Apache-2.0
// Not exported: reads a box of a tensor from a source on a server, in few requests that run at the same time.
module shardmesh.checkpoint_core:far_box;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import :stored_tensor;

namespace shardmesh {

// Reads gaps along with their neighbours if that costs less than another request (`byte_source::bytes_per_request`).
// Requests the resulting ranges together, at most 4096 at a time. Ranges that are contiguous on both sides go straight
// to `to`. Others are staged in at most `options.staging_bytes` of memory, or in at most 16 MiB if that is more.
// Precondition: the box lies within the tensor, whose type has whole bytes.
result<void> read_far_box(const byte_source& source, const stored_tensor& tensor, const box& part,
                          const tensor_view& to, const read_options& options);

}  // namespace shardmesh
