// SPDX-License-Identifier: Apache-2.0
// So does a look-up.
// expect: undefined template 'shardmesh::node_adapter<settings>'
import shardmesh.tree;

struct settings {};

int main() {
  settings root;
  return shardmesh::find(root, {"name"}) != nullptr;
}
