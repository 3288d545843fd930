// SPDX-License-Identifier: Apache-2.0
// Not exported: a state in memory as a checkpoint, so that a mapping can be applied before it is saved.
module shardmesh.mapping:memory_reader;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;

namespace shardmesh {

// Shows tensors and objects as a checkpoint without a path. Each part of a tensor is a chunk. The memory and the
// objects' functions must outlive the reader.
// \errors for each tensor, with its key: errc::shape_mismatch and errc::out_of_bounds (a view that does not fit its
//         box), errc::dtype_mismatch (parts differ), errc::unsupported (memory that the host cannot read, negative
//         strides), errc::gap and errc::overlap (parts do not tile); errc::duplicate_key
result<std::unique_ptr<checkpoint_reader>> make_memory_reader(std::span<const save_tensor> tensors,
                                                              std::span<const output_object> objects);

}  // namespace shardmesh
