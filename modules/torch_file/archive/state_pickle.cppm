// SPDX-License-Identifier: Apache-2.0
// Builds the data.pkl of a whole state dict and lists its storages. `state_file` places them. Not exported.
module shardmesh.torch_file:state_pickle;

import shardmesh.std;
import shardmesh.core;
import :state_file;

namespace shardmesh::torch_file {

struct state_pickle {
  std::vector<std::byte> data_pkl;
  std::vector<state_storage> storages;
};

// \errors those of state_file::make
result<state_pickle> pickle_of_state(std::span<const state_entry> entries);

}  // namespace shardmesh::torch_file
