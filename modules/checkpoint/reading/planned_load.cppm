// SPDX-License-Identifier: Apache-2.0
// Not exported: the requests of a load, compared with the checkpoint before a byte is read.
module shardmesh.checkpoint:planned_load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.checkpoint_core;
import :load;

namespace shardmesh {

// The tensors that requests name, and their chunks.
struct planned_load {
  std::vector<const tensor_entry*> tensors;  // each once, in the order of the requests
  std::vector<distribution> held;            // of the chunks, per tensor
  std::vector<std::size_t> tensor_of;        // per request: index into `tensors`
  std::vector<loaded_cast> casts;
};

// \errors those of `load` before a byte is read, except errc::overlap and errc::gap
result<planned_load> plan_load(const checkpoint_reader& reader, std::span<const load_request> requests,
                               const load_options& options);

// Finds one tensor. \errors errc::missing_key, with the nearest key; errc::dtype_mismatch for the key of an object
result<const tensor_entry*> find_tensor(const checkpoint_reader& reader, std::string_view key);

}  // namespace shardmesh
