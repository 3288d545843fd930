// SPDX-License-Identifier: Apache-2.0
// Decodes descriptions of wrappers. Sizes must agree with the components, because PyTorch trusts the sizes in a file.
module;
#include <fmt/format.h>
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

import :wrapper_form;
import :wrapper_setting;

namespace shardmesh::torch_file {
namespace {

constexpr std::size_t most_components = 16;

// Decodes the non-negative numbers of a torch.Size, tuple, or list.
std::optional<extents> numbers_of(pickle::value value) {
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

error bad(std::string message) {
  return fail(errc::bad_format, "malformed description of a wrapping tensor: " + std::move(message));
}

class form_reader {
 public:
  explicit form_reader(const pickle::value& description) : given_(description) {}

  result<wrapper_form> read() && {
    made_.type = std::string(*given_.find("type").text());
    SHARDMESH_TRY(read_components());
    SHARDMESH_TRY(read_parameter());
    SHARDMESH_TRY(read_family());
    return std::move(made_);
  }

 private:
  result<void> read_components() {
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

  result<void> read_parameter() {
    const auto parameter = given_.find("parameter").as_bool();
    made_.requires_grad = given_.find("requires_grad").as_bool().value_or(false);
    if (parameter.value_or(false)) made_.parameter = std::exchange(made_.requires_grad, false);
    return {};
  }

  result<void> read_family() {
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

  // Requires exactly these components in this order. `optional` may follow.
  result<void> expect(std::initializer_list<std::string_view> names, std::string_view optional = {}) {
    std::size_t i = 0;
    for (const std::string_view name : names)
      if (i >= made_.components.size() || made_.components[i++].name != name)
        return bad(fmt::format("a {} needs a component {}", made_.kind(), name));
    if (i < made_.components.size() && made_.components[i].name == optional) ++i;
    if (i == made_.components.size()) return {};
    return bad(fmt::format("a {} cannot have a component {}", made_.kind(), made_.components[i].name));
  }

  result<void> read_size() {
    const auto size = numbers_of(given_.find("size"));
    if (!size) return bad("its size is invalid");
    if (!checked_volume(*size))
      return fail(errc::overflow, "the size of a wrapping tensor does not fit in 64 bits: " + to_string(*size));
    made_.size = *size;
    return {};
  }

  error misfit(std::string_view component, const extents& expected) const {
    return fail(errc::shape_mismatch, fmt::format("the component {} does not fit into a {} of size {}", component,
                                                  made_.kind(), to_string(made_.size)))
        .with_values(to_string(expected), to_string(made_.find(component)->shape));
  }

  result<void> check_type(std::string_view component, std::initializer_list<dtype> allowed) const {
    const dtype type = made_.find(component)->type;
    if (std::find(allowed.begin(), allowed.end(), type) != allowed.end()) return {};
    return fail(errc::dtype_mismatch,
                fmt::format("the component {} of a {} has another dtype", component, made_.kind()))
        .with_values(std::string(name(*allowed.begin())), std::string(name(type)));
  }

  static extents joined(extents first, const extents& second, std::size_t from = 0) {
    for (std::size_t d = from; d < second.rank(); ++d) first.push_back(second[d]);
    return first;
  }

  // indices [dimensions, entries], values [entries, ...]
  result<void> read_coo() {
    made_.family = wrapper_family::coo;
    SHARDMESH_TRY(expect({"indices", "values"}));
    SHARDMESH_TRY(read_size());
    if (const pickle::value flag = given_.find("is_coalesced")) {
      made_.is_coalesced = flag.as_bool();
      if (!made_.is_coalesced) return bad("is_coalesced is not a bool");
    }
    SHARDMESH_TRY(check_type("indices", {dtype::int64}));
    const extents& indices = made_.find("indices")->shape;
    if (indices.rank() != 2 || indices[0] > static_cast<std::int64_t>(made_.size.rank()))
      return misfit("indices", {static_cast<std::int64_t>(made_.size.rank()), 0});
    const extents expected = joined({indices[1]}, made_.size, static_cast<std::size_t>(indices[0]));
    if (made_.find("values")->shape != expected) return misfit("values", expected);
    made_.element_type = made_.find("values")->type;
    return {};
  }

  // crow_indices [.., rows + 1], col_indices [.., entries], values [.., entries, (block,) ...]
  result<void> read_compressed() {
    made_.family = wrapper_family::compressed;
    const auto [first, second] = made_.layout->component;
    SHARDMESH_TRY(expect({first, second, "values"}));
    SHARDMESH_TRY(read_size());
    SHARDMESH_TRY(check_type(first, {dtype::int64, dtype::int32}));
    SHARDMESH_TRY(check_type(second, {made_.find(first)->type}));
    made_.element_type = made_.find("values")->type;
    const extents &pointers = made_.find(first)->shape, &values = made_.find("values")->shape;
    const std::size_t batch = pointers.rank() - std::min<std::size_t>(pointers.rank(), 1);
    const std::size_t blocks = made_.layout->in_blocks ? 2 : 0;
    if (pointers.rank() == 0 || made_.size.rank() < batch + 2) return misfit(first, {0});
    if (values.rank() != made_.size.rank() - 1 + blocks) return misfit("values", made_.size);
    extents in_front;
    for (std::size_t d = 0; d < batch; ++d) in_front.push_back(made_.size[d]);
    const std::int64_t entries = values[batch];
    extents blocked{1, 1}, expected = joined(in_front, {entries});
    if (made_.find(second)->shape != expected) return misfit(second, expected);
    for (std::size_t d = 0; d < blocks; ++d) {
      blocked[d] = values[batch + 1 + d];
      if (blocked[d] == 0 || made_.size[batch + d] % blocked[d] != 0) return misfit("values", made_.size);
      expected.push_back(blocked[d]);
    }
    expected = joined(expected, made_.size, batch + 2);
    if (values != expected) return misfit("values", expected);
    const std::size_t along = made_.layout->along;
    const extents counted = joined(in_front, {made_.size[batch + along] / blocked[along] + 1});
    if (pointers != counted) return misfit(first, counted);
    return {};
  }

  // A buffer; sizes and strides [tensors, dimensions], offsets [tensors].
  result<void> read_nested() {
    made_.family = wrapper_family::nested;
    SHARDMESH_TRY(expect({"buffer", "sizes", "strides", "offsets"}));
    for (const std::string_view name : {"sizes", "strides", "offsets"}) SHARDMESH_TRY(check_type(name, {dtype::int64}));
    made_.size = made_.find("buffer")->shape;
    made_.element_type = made_.find("buffer")->type;
    const extents &sizes = made_.find("sizes")->shape, &offsets = made_.find("offsets")->shape;
    if (made_.size.rank() != 1) return misfit("buffer", {0});
    // Without tensors, PyTorch stores sizes without dimensions.
    const bool is_empty = offsets.rank() == 1 && offsets[0] == 0;
    if (offsets.rank() != 1 || (!is_empty && (sizes.rank() != 2 || sizes[0] != offsets[0])))
      return misfit("offsets", sizes);
    if (made_.find("strides")->shape != sizes) return misfit("strides", sizes);
    return {};
  }

  // The values' dimension `ragged_dimension` - 1 is cut at the offsets. With lengths, the parts may leave gaps.
  result<void> read_jagged() {
    made_.family = wrapper_family::jagged;
    SHARDMESH_TRY(expect({"values", "offsets"}, "lengths"));
    made_.size = made_.find("values")->shape;
    made_.element_type = made_.find("values")->type;
    SHARDMESH_TRY(check_type("offsets", {dtype::int64, dtype::int32}));
    const auto ragged = given_.find("ragged_dimension").as_int();
    if (!ragged || *ragged < 1 || *ragged > static_cast<std::int64_t>(made_.size.rank()))
      return bad("its ragged dimension is out of range");
    made_.ragged_dimension = *ragged;
    const extents& offsets = made_.find("offsets")->shape;
    if (offsets.rank() != 1 || offsets[0] < 1) return misfit("offsets", {1});
    if (const component_form* const lengths = made_.find("lengths")) {
      SHARDMESH_TRY(check_type("lengths", {made_.find("offsets")->type}));
      if (lengths->shape != extents{offsets[0] - 1}) return misfit("lengths", {offsets[0] - 1});
    }
    made_.shortest = given_.find("shortest").as_int();
    made_.longest = given_.find("longest").as_int();
    if (made_.shortest.value_or(0) < 0 || made_.longest.value_or(0) < 0) return bad("a length is negative");
    made_.is_parameter = made_.parameter.has_value();
    if (made_.parameter) made_.requires_grad = *std::exchange(made_.parameter, std::nullopt);
    return {};
  }

  // int_repr, and the scales and zero points of its integers, as numbers or tensors.
  result<void> read_quantized() {
    made_.family = wrapper_family::quantized;
    const bool by_channel = made_.type == "torch.per_channel_affine";
    if (by_channel)
      SHARDMESH_TRY(expect({"int_repr", "scales", "zero_points"}));
    else
      SHARDMESH_TRY(expect({"int_repr"}));
    made_.quantized = find_quantized_dtype(given_.find("dtype").text().value_or(""));
    if (made_.quantized == nullptr) return bad("its dtype is not a quantized one");
    SHARDMESH_TRY(check_type("int_repr", {made_.quantized->stored}));
    made_.size = made_.find("int_repr")->shape;
    if (!by_channel) {
      made_.scale = given_.find("scale");
      made_.zero_point = given_.find("zero_point");
      if (!made_.scale.as_float() || !made_.zero_point.as_int()) return bad("its scale or zero point is not a number");
      return {};
    }
    made_.axis = given_.find("axis").as_int().value_or(-1);
    if (made_.axis < 0 || made_.axis >= static_cast<std::int64_t>(made_.size.rank()))
      return bad("its axis is not one of its dimensions");
    SHARDMESH_TRY(check_type("scales", {dtype::float64, dtype::float32}));
    const bool in_floats = made_.find("scales")->type == dtype::float32;
    SHARDMESH_TRY(check_type("zero_points", {in_floats ? dtype::float32 : dtype::int64}));
    const extents expected{made_.size[static_cast<std::size_t>(made_.axis)]};
    for (const std::string_view name : {"scales", "zero_points"})
      if (made_.find(name)->shape != expected) return misfit(name, expected);
    return {};
  }

  result<void> read_subclass() {
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
  bool fits(const extents& strides, dtype type) const {
    if (strides.rank() != made_.size.rank()) return false;
    std::optional<std::int64_t> reach = 1;
    for (std::size_t d = 0; d < strides.rank() && reach; ++d) {
      const auto step = checked_multiply(std::max<std::int64_t>(made_.size[d] - 1, 0), strides[d]);
      reach = step ? checked_add(*reach, *step) : std::nullopt;
    }
    return reach && size_bytes(type, *reach) && size_bytes(type, *checked_volume(made_.size));
  }

  // The state must name every component and every attribute once.
  result<void> check_order() const {
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

  const pickle::value given_;
  wrapper_form made_;
};

}  // namespace

const component_form* wrapper_form::find(std::string_view name) const {
  for (const component_form& component : components)
    if (component.name == name) return &component;
  return nullptr;
}

std::string wrapper_form::kind() const {
  if (type.starts_with("torch.sparse_")) {
    std::string layout_name = type.substr(std::string_view("torch.sparse_").size());
    for (char& c : layout_name) c = static_cast<char>(c - 'a' + 'A');
    return "sparse " + layout_name + " tensor";
  }
  if (type == "torch.nested" || type == "torch.jagged") return "nested tensor";
  if (type.ends_with("_affine")) return "quantized tensor";
  return "tensor subclass " + type;
}

bool is_wrapper_description(const pickle::value& object) {
  return object.kind() == pickle::kind::dict && object.find("type").text() &&
         (object.find("components").kind() == pickle::kind::dict ||
          object.find("components").kind() == pickle::kind::list);
}

result<wrapper_form> read_wrapper_form(const pickle::value& description) {
  return form_reader(description).read();
}

}  // namespace shardmesh::torch_file
