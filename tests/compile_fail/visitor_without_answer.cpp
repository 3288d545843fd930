// SPDX-License-Identifier: Apache-2.0
// A visitor must return whether to continue: one that returns nothing is refused.
// says: this function does not take the arguments, or does not return the type
import shardmesh.layout;

int main() {
  shardmesh::distribution().fragments_of(0, [](const shardmesh::fragment&) {});
}
