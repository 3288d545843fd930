// SPDX-License-Identifier: Apache-2.0
// Walking a type without an adapter names the customisation point.
// expect: undefined template 'shardmesh::node_adapter<settings>'
import shardmesh.tree;

struct settings {};

int main() {
  settings root;
  shardmesh::visit(root, [](const shardmesh::path&, settings&) { return shardmesh::visit_step::into; });
}
