// SPDX-License-Identifier: Apache-2.0
// A visitor must return whether to continue.
// says: visit calls f(const path&, Node&), which returns a visit_step: into its children, over them, or stop
import shardmesh.tree;

struct node {};

template <>
struct shardmesh::node_adapter<node> {
  static node_kind kind(const node&) { return node_kind::leaf; }
  template <class N, class Visit>
  static void children(N&, Visit&&) {}
};

int main() {
  node root;
  shardmesh::visit(root, [](const shardmesh::path&, node&) {});
}
