// SPDX-License-Identifier: Apache-2.0
// Not exported: one rank's state as it describes it to rank 0. The merged states of all ranks are in `rank_state`.
module shardmesh.collective_checkpoint:said_state;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import shardmesh.tree;

namespace shardmesh {

// The description of an object that a rank sends to the others.
struct described_object {
  path where;
  digest128 digest;  // of its archive
  std::int64_t length = 0;
  std::string summary;
};

// Encodes this rank's description: the shapes and boxes of its state, without memory. `objects` describes the objects
// of the state.
std::vector<std::byte> describe(const const_local_state& state, std::span<const described_object> objects);

struct listed_tensor {
  path where;
  extents shape;
  dtype type = dtype::undefined;
};

// The tensors of a rank, without its boxes. Most ranks have equal lists, which are decoded and matched once.
struct tensor_list {
  std::vector<std::byte> bytes;
  std::vector<listed_tensor> tensors;
};

struct said_state {
  std::shared_ptr<const tensor_list> list;
  std::vector<box> parts;            // of all tensors, in order
  std::vector<std::size_t> in_each;  // per tensor, the number of its parts
  std::vector<described_object> objects;
};

// Reads what `describe` wrote. Returns nothing for malformed bytes.
// \param latest  the list of the rank before, or null
std::optional<said_state> read_state(std::span<const std::byte> bytes, std::shared_ptr<const tensor_list> latest);

}  // namespace shardmesh
