// SPDX-License-Identifier: Apache-2.0
// A tree is built only from nodes whose adapter has `make`.
// expect: buildable_state_node
#include <vector>
import shardmesh.tree;

struct node {};

template <>
struct shardmesh::node_adapter<node> {
  static node_kind kind(const node&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
};

int main() {
  return shardmesh::build(shardmesh::tree_spec(), std::vector<node>()).has_value();
}
