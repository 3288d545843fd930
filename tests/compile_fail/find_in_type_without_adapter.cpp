// SPDX-License-Identifier: Apache-2.0
// A look-up in a type without an adapter names the customisation point.
// expect: undefined template 'shardmesh::node_adapter<settings>'
import shardmesh.tree;

struct settings {};

int main() {
  settings root;
  return shardmesh::find(root, {"name"}) != nullptr;
}
