// SPDX-License-Identifier: Apache-2.0
// A type that lacks FSDP's functions is not an extension.
// expect: error: no matching function.*fsdp_extension
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>
import shardmesh.fsdp;

using namespace shardmesh;

struct no_extension {};

auto flattened(std::vector<named_parameter<host_tensor>> parameters, const device_mesh& mesh) {
  return flatten_parameters<host_tensor>(std::move(parameters), no_extension{}, mesh, 0, 0);
}
