// SPDX-License-Identifier: Apache-2.0
// Work that starts on a communicator continues after the call: a temporary would be destroyed.
// expect: keep_the_communicator_in_a_variable
import shardmesh.transfer;

int main() {
  const shardmesh::thread_group group(1);
  return shardmesh::redistribute({}, group.communicator(0)).has_value() ? 0 : 1;
}
