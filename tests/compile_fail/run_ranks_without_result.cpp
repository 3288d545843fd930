// SPDX-License-Identifier: Apache-2.0
// The function of every rank must return a result.
// says: this function does not take the arguments, or does not return the type
import shardmesh.comm;

int main() {
  return shardmesh::run_ranks(2, [](shardmesh::any_communicator& comm) { return comm.rank(); }).has_value();
}
