// SPDX-License-Identifier: Apache-2.0
// A visitor of a streamed state dict returns nothing or a result<void>: an answer that nobody reads does not compile.
// expect: error: no matching function.*tensor_visitor
#include <string_view>

import shardmesh.fsdp;

using namespace shardmesh;

int main() {
  fsdp_model model;
  thread_group group(1);
  any_communicator comm(group.communicator(0));
  auto done = stream_full_state_dict<host_tensor>(model, comm, [](std::string_view, host_tensor) { return true; });
}
