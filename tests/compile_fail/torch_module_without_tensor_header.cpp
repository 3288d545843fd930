// SPDX-License-Identifier: Apache-2.0
// A module's tensors must be local tensors: shardmesh/torch_tensor.hpp adapts LibTorch's.
// expect: error: no matching function.*does not satisfy 'torch_module'.*does not satisfy 'local_tensor'
#include <string>
#include <vector>

import shardmesh.torch;

struct tensor_without_adapter {};
struct item {
  std::string key() const { return "weight"; }
  tensor_without_adapter value() const { return {}; }
};
struct module_like {
  std::vector<item> named_parameters(bool) const { return {}; }
  std::vector<item> named_buffers(bool) const { return {}; }
};

int main() {
  return shardmesh::save_checkpoint(module_like(), "folder") ? 0 : 1;
}
