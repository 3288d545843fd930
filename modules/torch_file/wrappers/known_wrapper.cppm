// SPDX-License-Identifier: Apache-2.0
// Not exported: tensors that wrap others, of which we know what their parts mean. Not here: such tensors as entries of
// a checkpoint (component_reader).
module shardmesh.torch_file:known_wrapper;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// A tensor inside a wrapper, under the name that PyTorch gives it: "indices".
struct wrapper_component {
  std::string name;
  std::size_t tensor = 0;  // index into the item's tensors
};

struct wrapper_parts {
  std::vector<wrapper_component> components;
  // A torch.save archive of a dict: what is needed beside the components to make the wrapper again.
  std::vector<std::byte> description;
};

// The parts of an opaque tensor; nothing when we do not know its class, or its pickle is not of the form that we know:
// a version of later. Cost: O(size of the description).
std::optional<wrapper_parts> take_wrapper_apart(const torch_file::item& item, const pickle::value& value);

}  // namespace shardmesh::torch_file
