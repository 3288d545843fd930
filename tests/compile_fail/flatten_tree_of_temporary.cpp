// SPDX-License-Identifier: Apache-2.0
// Walks return pointers into a tree, so a temporary tree is refused.
// expect: does not satisfy 'tree_root'
import shardmesh.tree;

struct node {};

template <>
struct shardmesh::node_adapter<node> {
  static node_kind kind(const node&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
};

int main() {
  return shardmesh::flatten_tree(node{}).has_value();
}
