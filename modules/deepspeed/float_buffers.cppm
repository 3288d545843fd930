// SPDX-License-Identifier: Apache-2.0
// Not exported: reads buffers as float32, as zero_to_fp32.py does, whatever dtype they were saved in.
module shardmesh.deepspeed:float_buffers;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;

namespace shardmesh::deepspeed {

// Returns a reader that converts tensors of `inner` while they are read: its tensor i is `inner`'s tensor `tensors[i]`.
// `inner` must outlive it. Precondition: each tensor has one chunk and a dtype that converts to float32.
std::unique_ptr<checkpoint_reader> as_float32(checkpoint_reader& inner, std::vector<std::size_t> tensors);

}  // namespace shardmesh::deepspeed
