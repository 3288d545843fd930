// SPDX-License-Identifier: Apache-2.0
// Splits known wrapping tensors into their components, which `component_reader` presents as entries. Not exported.
module shardmesh.torch_file:known_wrapper;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// A tensor inside a wrapper, with PyTorch's name for it: "indices".
struct wrapper_component {
  std::string name;
  std::size_t tensor = 0;  // index into the item's tensors
};

struct wrapper_parts {
  std::vector<wrapper_component> components;
  // A torch.save archive of a dict with everything else that is needed to rebuild the wrapper.
  std::vector<std::byte> description;
};

// Splits an opaque tensor. Empty for unknown classes, and for pickles of another form than the known one, such as those
// of later versions.
// Cost: O(size of the description).
std::optional<wrapper_parts> take_wrapper_apart(const torch_file::item& item, const pickle::value& value);

}  // namespace shardmesh::torch_file
