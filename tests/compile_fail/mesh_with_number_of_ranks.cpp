// SPDX-License-Identifier: Apache-2.0
// The sizes of a mesh determine its number of ranks.
// says: the number of ranks follows from the sizes
import shardmesh.layout;

int main() {
  return shardmesh::device_mesh::make({2, 4}, 8).has_value();
}
