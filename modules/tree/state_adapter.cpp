// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <vector>
module shardmesh.tree;

namespace shardmesh::detail {
namespace {

template <class Tensor>
void sort_all(std::vector<Tensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.where < b.where; });
}

}  // namespace

void sort_by_path(std::vector<local_state_tensor>& tensors) {
  sort_all(tensors);
}

void sort_by_path(std::vector<const_local_state_tensor>& tensors) {
  sort_all(tensors);
}

}  // namespace shardmesh::detail
