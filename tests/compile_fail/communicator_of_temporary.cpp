// SPDX-License-Identifier: Apache-2.0
// What is started on a communicator goes on after the call: a temporary one would be gone.
// expect: keep_the_communicator_in_a_variable
import shardmesh.transfer;

int main() {
  const shardmesh::thread_group group(1);
  return shardmesh::redistribute({}, group.communicator(0)).has_value() ? 0 : 1;
}
