// SPDX-License-Identifier: Apache-2.0
// A result must be looked at.
// expect: error: ignoring return value of (type|function declared with .nodiscard)
import shardmesh.core;

shardmesh::result<void> act() {
  return {};
}
int main() {
  act();
}
