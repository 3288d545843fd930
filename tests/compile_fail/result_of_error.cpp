// SPDX-License-Identifier: Apache-2.0
// A result with an error as its value would be ambiguous.
// expect: error: constraints not satisfied for class template 'result'.*result_value
import shardmesh.core;

using wrong = shardmesh::result<shardmesh::error>;
int main() {
  return sizeof(wrong);
}
