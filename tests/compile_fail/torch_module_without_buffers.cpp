// SPDX-License-Identifier: Apache-2.0
// Buffers are entries of a module: a type without named_buffers is not a module.
// expect: error: no matching function for call to 'save_checkpoint'.*does not satisfy 'torch_module'.*named_buffers
#include <shardmesh/adapter.hpp>

#include <string>
#include <vector>

import shardmesh.torch;

struct my_tensor {};
template <>
struct shardmesh::adapter<my_tensor> {
  static tensor_view view(const my_tensor&) { return {}; }
};
struct item {
  std::string key() const { return "weight"; }
  my_tensor value() const { return {}; }
};
struct parameters_alone {
  std::vector<item> named_parameters(bool) const { return {}; }
};

int main() {
  return shardmesh::save_checkpoint(parameters_alone(), "folder") ? 0 : 1;
}
