// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>
module shardmesh.torch_file;

namespace shardmesh::torch_file {

result<wrapping_tensors> wrapping_tensors::open(checkpoint_reader& reader) {
  wrapping_tensors made;
  made.assembled_ = dynamic_cast<const assembled_tensors*>(&reader);
  SHARDMESH_TRY(made.unwrapped_, unwrap_tensors(reader));
  return made;
}

std::optional<tensor_components> wrapping_tensors::components_of(std::size_t tensor) const {
  if (assembled_ != nullptr)
    if (auto found = assembled_->components_of(tensor)) return found;
  const auto taken = unwrapped_.taken.find(tensor);
  if (taken == unwrapped_.taken.end()) return std::nullopt;
  tensor_components found{unwrapped_.reader.get(), std::vector<std::size_t>(taken->second.tensors),
                          taken->second.description};
  std::iota(found.tensors.begin(), found.tensors.end(), taken->second.first_tensor);
  return found;
}

}  // namespace shardmesh::torch_file
