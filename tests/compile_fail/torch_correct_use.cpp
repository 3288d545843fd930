// SPDX-License-Identifier: Apache-2.0
// The control for the cases of module torch: correct use of everything that they misuse. Their modules have LibTorch's
// shape without its headers, which take many seconds.
// expect: compiles
#include <shardmesh/adapter.hpp>

#include <string>
#include <vector>

import shardmesh.torch;

struct my_tensor {
  float* data = nullptr;
  bool defined() const { return data != nullptr; }
};
template <>
struct shardmesh::adapter<my_tensor> {
  static tensor_view view(const my_tensor&) { return {}; }
};
struct item {
  std::string key() const { return "weight"; }
  my_tensor value() const { return {}; }
};
struct module_like {
  std::vector<item> named_parameters(bool) const { return {}; }
  std::vector<item> named_buffers(bool) const { return {}; }
};

int main() {
  static_assert(shardmesh::torch_module<module_like>);
  return static_cast<int>(shardmesh::entries_of(module_like()).size());
}
