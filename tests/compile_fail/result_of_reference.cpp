// SPDX-License-Identifier: Apache-2.0
// A result owns its value: references are refused.
// expect: error: constraints not satisfied for class template 'result'.*result_value
import shardmesh.core;

using wrong = shardmesh::result<int&>;
int main() {
  return sizeof(wrong);
}
