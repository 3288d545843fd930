// SPDX-License-Identifier: Apache-2.0
// Functions that return new tensors need an adapter that can make them.
// expect: error: no matching function.*does not satisfy 'allocatable_tensor'
#include <shardmesh/adapter.hpp>

import shardmesh.core;

struct view_only {};
template <>
struct shardmesh::adapter<view_only> {
  static tensor_view view(const view_only&) { return {}; }
};
template <shardmesh::allocatable_tensor T>
void make_like(const T&) {}
int main() {
  make_like(view_only{});
}
