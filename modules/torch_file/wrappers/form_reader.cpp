// SPDX-License-Identifier: Apache-2.0
// The parts of a description that all wrappers have.
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :form_reader;
import :wrapper_setting;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t most_components = 16;

// Whether these are the strides of a contiguous tensor with permuted dimensions.
bool are_dense(const extents& shape, const extents& strides) {
  if (shape.rank() != strides.rank()) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> by_stride;
  for (std::size_t d = 0; d < shape.rank(); ++d)
    if (shape[d] != 1) by_stride.emplace_back(strides[d], shape[d]);
  std::sort(by_stride.begin(), by_stride.end());
  std::int64_t expected = 1;
  for (const auto& [stride, size] : by_stride) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

}  // namespace

error form_reader::bad(std::string message) {
  return fail(errc::bad_format, "malformed description of a wrapping tensor: " + std::move(message));
}

std::optional<extents> form_reader::numbers_of(pickle::value value) {
  if (value.is_record_of("torch", "Size") && value.args().size() == 1) value = value.args().items()[0];
  if (value.kind() != pickle::kind::tuple && value.kind() != pickle::kind::list) return std::nullopt;
  if (value.size() > max_rank) return std::nullopt;
  extents numbers;
  for (const pickle::value item : value.items()) {
    const auto number = item.as_int();
    if (!number || *number < 0) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

result<wrapper_form> form_reader::read() && {
  made_.type = std::string(*given_.find("type").text());
  SHARDMESH_TRY(read_components());
  SHARDMESH_TRY(read_parameter());
  SHARDMESH_TRY(read_family());
  return std::move(made_);
}

result<void> form_reader::read_components() {
  const pickle::value given = given_.find("components");
  if (given.kind() != pickle::kind::dict || given.size() == 0 || given.size() > most_components)
    return bad("its components lack their dtypes and shapes");
  for (const pickle::pair pair : given.pairs()) {
    const auto name = pair.key.text();
    if (!name || !is_attribute_name(*name) || made_.find(*name) != nullptr)
      return bad("a component's name is not valid");
    const auto type_text = pair.value.find("dtype").text();
    const auto type = type_text ? parse_dtype(*type_text) : std::nullopt;
    const auto shape = numbers_of(pair.value.find("shape"));
    if (!type || !shape || *type == dtype::undefined)
      return bad(fmt::format("the component {} has no dtype or no shape", *name));
    component_form made{std::string(*name), *type, *shape, {}};
    const auto count = checked_volume(*shape);
    if (!count || !size_bytes(*type, *count))
      return fail(errc::overflow, fmt::format("the size of the component {} does not fit in 64 bits", *name));
    SHARDMESH_TRY(tensor_pickle(*type, *shape));
    const auto strides = numbers_of(pair.value.find("strides"));
    made.strides = strides && are_dense(*shape, *strides) ? *strides : contiguous_strides(*shape);
    made_.components.push_back(std::move(made));
  }
  return {};
}

result<void> form_reader::read_parameter() {
  const auto parameter = given_.find("parameter").as_bool();
  made_.requires_grad = given_.find("requires_grad").as_bool().value_or(false);
  if (parameter.value_or(false)) made_.parameter = std::exchange(made_.requires_grad, false);
  return {};
}

result<void> form_reader::read_family() {
  if (made_.type == "torch.sparse_coo") return read_coo();
  made_.layout = find_compressed_layout(made_.type);
  if (made_.layout != nullptr) return read_compressed();
  if (made_.type == "torch.nested") return read_nested();
  if (made_.type == "torch.jagged") return read_jagged();
  if (made_.type == "torch.per_tensor_affine" || made_.type == "torch.per_channel_affine") return read_quantized();
  made_.subclass = find_wrapper_class(made_.type);
  if (made_.subclass != nullptr) return read_subclass();
  return fail(errc::unsupported, "the description of a wrapping tensor is of an unknown type")
      .with_values("", escaped(made_.type));
}

result<void> form_reader::read_size() {
  const auto size = numbers_of(given_.find("size"));
  if (!size) return bad("its size is invalid");
  if (!checked_volume(*size))
    return fail(errc::overflow, "the size of a wrapping tensor does not fit in 64 bits: " + to_string(*size));
  made_.size = *size;
  return {};
}

result<void> form_reader::expect(std::initializer_list<std::string_view> names, std::string_view optional) {
  std::size_t i = 0;
  for (const std::string_view name : names)
    if (i >= made_.components.size() || made_.components[i++].name != name)
      return bad(fmt::format("a {} needs a component {}", made_.kind(), name));
  if (i < made_.components.size() && made_.components[i].name == optional) ++i;
  if (i == made_.components.size()) return {};
  return bad(fmt::format("a {} cannot have a component {}", made_.kind(), made_.components[i].name));
}

result<void> form_reader::check_type(std::string_view component, std::initializer_list<dtype> allowed) const {
  const dtype type = made_.find(component)->type;
  if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) return {};
  return fail(errc::dtype_mismatch, fmt::format("the component {} of a {} has another dtype", component, made_.kind()))
      .with_values(std::string(name(*allowed.begin())), std::string(name(type)));
}

error form_reader::misfit(std::string_view component, const extents& expected) const {
  return fail(errc::shape_mismatch, fmt::format("the component {} does not fit into a {} of size {}", component,
                                                made_.kind(), to_string(made_.size)))
      .with_values(to_string(expected), to_string(made_.find(component)->shape));
}

}  // namespace shardmesh::torch_file
