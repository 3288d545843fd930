// SPDX-License-Identifier: Apache-2.0
// A visitor of fragments takes a fragment.
// expect: error: no (viable conversion|matching).*fragment
import shardmesh.layout;

int main() {
  shardmesh::distribution().fragments_of(0, [](int) { return true; });
}
