// SPDX-License-Identifier: Apache-2.0
// A transformer must return a decision for every node.
// expect: node_transformer
import shardmesh.tree;

struct node {};

template <>
struct shardmesh::node_adapter<node> {
  static node_kind kind(const node&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
};

int main() {
  const node root;
  return shardmesh::transform(root, [](const shardmesh::path&, const node&) { return true; }).has_value();
}
