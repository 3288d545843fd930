// SPDX-License-Identifier: Apache-2.0
// Exports the types of include/shardmesh/{extents,dtype,device}.hpp: they live in the global module so that headers of
// other frameworks can use them without `import`.
module;
#include <shardmesh/device.hpp>
#include <shardmesh/dtype.hpp>
#include <shardmesh/extents.hpp>

#include <functional>
#include <iosfwd>
#include <string>
export module shardmesh.core:extents;

export namespace shardmesh {
using shardmesh::device;
using shardmesh::device_type;
using shardmesh::dtype;
using shardmesh::extents;
using shardmesh::max_rank;

/// "[3, 4]"; a scalar's is "[]".
std::string to_string(const extents& values);
}  // namespace shardmesh
