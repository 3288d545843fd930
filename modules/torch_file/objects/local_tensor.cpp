// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <optional>
#include <string_view>
module shardmesh.torch_file;

import :local_tensor;

namespace shardmesh::torch_file {
namespace {

bool is_dtensor_class(const pickle::value& type) {
  return type.global_name() == "DTensor" && (type.global_module().starts_with("torch.distributed.tensor") ||
                                             type.global_module().starts_with("torch.distributed._tensor"));
}

// Finds an attribute in a pickled state: a __dict__, or (__dict__ or None, slots). DTensor has slots.
pickle::value attribute_of(const pickle::value& state, std::string_view name) {
  if (state.kind() == pickle::kind::dict) return state.find(name);
  for (const pickle::value half : state.items())
    if (const pickle::value found = half.find(name)) return found;
  return {};
}

}  // namespace

std::optional<std::size_t> local_tensor_of(const torch_file::item& item, const pickle::value& value) {
  // A Parameter: _rebuild_parameter(data, requires_grad, hooks).
  if (value.is_record_of("torch._utils", "_rebuild_parameter") && value.args().size() >= 2)
    return local_tensor_of(item, value.args().items()[0]);
  // _rebuild_from_type_v2(rebuild, class, arguments, state)
  if (!value.is_record_of("torch._tensor", "_rebuild_from_type_v2") || value.args().size() != 4) return std::nullopt;
  const pickle::items parts = value.args().items();
  if (!is_dtensor_class(parts[1])) return std::nullopt;
  return item.tensor_of(attribute_of(parts[3], "_local_tensor"));
}

}  // namespace shardmesh::torch_file
