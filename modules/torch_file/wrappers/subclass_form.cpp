// SPDX-License-Identifier: Apache-2.0
// Subclasses of torch.Tensor: their components, and their settings.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>
module shardmesh.torch_file;

import :form_reader;
import :wrapper_setting;

namespace shardmesh::torch_file {

result<void> form_reader::read_subclass() {
  made_.family = wrapper_family::subclass;
  const wrapper_class& known = *made_.subclass;
  for (const component_form& component : made_.components)
    if (std::find(known.tensors.begin(), known.tensors.end(), component.name) == known.tensors.end())
      return bad(fmt::format("a {} cannot have a component {}", known.name, component.name));
  for (const std::string_view needed : known.tensors.first(known.needed))
    if (made_.find(needed) == nullptr) return bad(fmt::format("a {} needs a component {}", known.name, needed));
  SHARDMESH_TRY(read_size());
  const pickle::value type = given_.find("dtype");
  const auto strides = numbers_of(given_.find("strides"));
  const auto element_type = type.global_module() == "torch" ? parse_dtype(type.global_name()) : std::nullopt;
  if (!element_type || !tensor_pickle(*element_type, {})) return bad("its dtype is not one of a tensor");
  if (!strides || !fits(*strides, *element_type)) return bad("its strides do not fit its size");
  made_.element_type = *element_type;
  made_.strides = *strides;
  made_.attributes = given_.find("attributes");
  made_.order = given_.find("state");
  return check_order();
}

// Whether the strides are possible. Those of packed elements differ from the contiguous strides of the size.
bool form_reader::fits(const extents& strides, dtype type) const {
  if (strides.rank() != made_.size.rank()) return false;
  std::optional<std::int64_t> reach = 1;
  for (std::size_t d = 0; d < strides.rank() && reach; ++d) {
    const auto step = checked_multiply(std::max<std::int64_t>(made_.size[d] - 1, 0), strides[d]);
    reach = step ? checked_add(*reach, *step) : std::nullopt;
  }
  return reach && size_bytes(type, *reach) && size_bytes(type, *checked_volume(made_.size));
}

// The state must name every component and every attribute once.
result<void> form_reader::check_order() const {
  if (made_.attributes.kind() != pickle::kind::dict || made_.order.kind() != pickle::kind::list ||
      made_.attributes.size() > 64)
    return bad("its attributes are missing");
  std::vector<std::string_view> named, wanted;
  for (const pickle::value name : made_.order.items()) named.push_back(name.text().value_or(""));
  for (const component_form& component : made_.components) wanted.push_back(component.name);
  for (const pickle::pair pair : made_.attributes.pairs()) {
    const auto name = pair.key.text();
    if (!name || !is_attribute_name(*name)) return bad("an attribute's name is not valid");
    pickle::writer scratch(2);
    if (auto done = write_setting(scratch, pair.value); !done)
      return fail(done.error().code,
                  fmt::format("its attribute {} cannot be rebuilt: {}", *name, done.error().message));
    wanted.push_back(*name);
  }
  std::sort(named.begin(), named.end());
  std::sort(wanted.begin(), wanted.end());
  if (named != wanted || std::adjacent_find(named.begin(), named.end()) != named.end())
    return bad("its state does not name its components and attributes once each");
  return {};
}

}  // namespace shardmesh::torch_file
