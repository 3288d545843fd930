// SPDX-License-Identifier: Apache-2.0
// Exports the types of include/shardmesh/. They are in the global module, so that headers of other frameworks can use
// them without `import`.
module;
#include <shardmesh/adapter.hpp>
#include <shardmesh/reduce_op.hpp>
#include <shardmesh/remote_device.hpp>
#include <shardmesh/tensor_properties.hpp>
export module shardmesh.core:headers;

export namespace shardmesh {
using shardmesh::adapter;
using shardmesh::const_tensor_view;
using shardmesh::device;
using shardmesh::device_type;
using shardmesh::dtype;
using shardmesh::extents;
using shardmesh::max_rank;
using shardmesh::memory_format;
using shardmesh::reduce_op;
using shardmesh::remote_device;
using shardmesh::tensor_properties;
using shardmesh::tensor_storage;
using shardmesh::tensor_view;
}  // namespace shardmesh
