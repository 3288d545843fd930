// SPDX-License-Identifier: Apache-2.0
// Not exported: buffers that are seen as float32, as zero_to_fp32.py gives them, whatever dtype they were saved in.
module shardmesh.deepspeed:float_buffers;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh::deepspeed {

// Tensors of `inner`, which must outlive this, converted while they are read: tensor i is `inner`'s tensor
// `tensors[i]`. Precondition: each has one chunk and a dtype that converts to float32.
std::unique_ptr<checkpoint_reader> as_float32(checkpoint_reader& inner, std::vector<std::size_t> tensors);

}  // namespace shardmesh::deepspeed
