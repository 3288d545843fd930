// SPDX-License-Identifier: Apache-2.0
// Not exported: the data.pkl of a whole state dict, and the storages that it names. Not here: where they lie (save).
module shardmesh.torch_file:state_pickle;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;

namespace shardmesh::torch_file {

struct state_pickle {
  std::vector<std::byte> data_pkl;
  // Storage `number` is record data/NUMBER: a tensor's elements, or bytes that an archive has.
  struct written_storage {
    std::optional<std::size_t> tensor;  // its index
    std::vector<std::byte> bytes;
  };
  std::vector<written_storage> storages;
};

// \errors those of torch_file::save
result<state_pickle> pickle_of_state(std::span<const output_tensor> tensors, std::span<const output_object> objects);

}  // namespace shardmesh::torch_file
