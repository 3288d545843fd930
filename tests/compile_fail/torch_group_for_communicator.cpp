// SPDX-License-Identifier: Apache-2.0
// A process group itself is not a communicator; c10d_communicator::of makes one from it.
// expect: error: no matching function for call to 'agree'.*incomplete type 'c10d::ProcessGroup'
#include <shardmesh/torch_forward.hpp>

#include <span>

import shardmesh.comm;
import shardmesh.torch;

bool agreed(c10d::ProcessGroup& group, std::span<const shardmesh::agreement_record> records) {
  return shardmesh::agree(group, records).has_value();
}
