// SPDX-License-Identifier: Apache-2.0
// A result must be checked.
// says: a result says whether the call worked: test it, or call value(), which throws
import shardmesh.core;

shardmesh::result<void> act() {
  return {};
}
int main() {
  act();
}
