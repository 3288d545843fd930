// SPDX-License-Identifier: Apache-2.0
// A visitor says whether to go on: one that returns nothing is refused.
// expect: error: no viable conversion.*is_invocable_r_v|error: no viable conversion.*function_ref
import shardmesh.layout;

int main() {
  shardmesh::distribution().fragments_of(0, [](const shardmesh::fragment&) {});
}
