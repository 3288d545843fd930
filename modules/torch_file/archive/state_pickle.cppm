// SPDX-License-Identifier: Apache-2.0
// Not exported: the data.pkl of a whole state dict, and the storages that it names. Not here: where they lie
// (state_file).
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
