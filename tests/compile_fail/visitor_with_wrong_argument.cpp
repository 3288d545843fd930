// SPDX-License-Identifier: Apache-2.0
// A visitor of fragments takes a fragment.
// says: this function does not take the arguments, or does not return the type
import shardmesh.layout;

int main() {
  shardmesh::distribution().fragments_of(0, [](int) { return true; });
}
