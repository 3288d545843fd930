// SPDX-License-Identifier: Apache-2.0
// Decodes PyTorch's sparse, nested, and quantized tensors, and torchao's subclasses, whose state is a dict of tensors
// and settings. A pickle that deviates from the known form is not split: an overlooked part would be lost.
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :known_wrapper;
import :object_parts;
import :wrapper_description;
import :wrapper_table;

namespace shardmesh::torch_file {
namespace {

class wrapper_reader {
 public:
  wrapper_reader(const torch_file::item& item, std::optional<bool> requires_grad)
      : item_(item), requires_grad_(requires_grad) {}

  std::optional<wrapper_parts> read(const pickle::value& value) {
    const pickle::value callable = value.callable();
    if (value.state() || value.appended() || value.assigned()) return std::nullopt;
    if (callable.is_global("torch._utils", "_rebuild_sparse_tensor")) return sparse(value.args());
    if (callable.is_global("torch._utils", "_rebuild_nested_tensor")) return nested(value.args());
    if (callable.is_global("torch._utils", "_rebuild_qtensor")) return quantized(value);
    if (!callable.is_global("torch._tensor", "_rebuild_from_type_v2") || value.args().size() != 4) return std::nullopt;
    const pickle::value rebuild = value.args().items()[0];
    if (rebuild.is_global("torch.nested._internal.nested_tensor", "_rebuild_njt")) return jagged(value.args());
    if (rebuild.is_global("torch._utils", "_rebuild_wrapper_subclass")) return subclass_of(value.args());
    return std::nullopt;
  }

 private:
  // False if the value is not a tensor that we read.
  bool add(std::string_view name, const pickle::value& value) {
    const auto tensor = item_.tensor_of(value);
    if (tensor) components_.push_back({std::string(name), *tensor});
    return tensor.has_value();
  }

  std::optional<wrapper_parts> finish(wrapper_description made) {
    if (requires_grad_) made.add_flag("parameter", true), made.add_flag("requires_grad", *requires_grad_);
    return std::move(made).finish(item_, std::move(components_));
  }

  static bool is_size(const pickle::value& value) { return value.is_record_of("torch", "Size"); }

  // (layout, data). COO data: indices, values, size, since 2.1 is_coalesced. Others: two index tensors, values, size.
  std::optional<wrapper_parts> sparse(const pickle::value& args) {
    if (args.size() != 2) return std::nullopt;
    const pickle::value layout = args.items()[0], data = args.items()[1];
    if (!layout.is_record_of("torch.serialization", "_get_layout") || data.kind() != pickle::kind::tuple)
      return std::nullopt;
    const std::string name(argument_of(layout, 0).text().value_or(""));
    const pickle::items parts = data.items();
    wrapper_description made(name);
    if (name == "torch.sparse_coo") {
      if (data.size() < 3 || data.size() > 4 || !add("indices", parts[0]) || !add("values", parts[1]) ||
          !is_size(parts[2]))
        return std::nullopt;
      made.add("size", parts[2]);
      if (data.size() == 4) {
        const auto is_coalesced = parts[3].as_bool();
        if (!is_coalesced) return std::nullopt;
        made.add_flag("is_coalesced", *is_coalesced);
      }
      return finish(std::move(made));
    }
    const compressed_layout* const known = find_compressed_layout(name);
    if (known == nullptr || data.size() != 4 || !add(known->component[0], parts[0]) ||
        !add(known->component[1], parts[1]) || !add("values", parts[2]) || !is_size(parts[3]))
      return std::nullopt;
    made.add("size", parts[3]);
    return finish(std::move(made));
  }

  // A buffer, and the sizes, strides, and offsets of the tensors in it.
  std::optional<wrapper_parts> nested(const pickle::value& args) {
    if (args.size() != 4) return std::nullopt;
    const pickle::items parts = args.items();
    if (!add("buffer", parts[0]) || !add("sizes", parts[1]) || !add("strides", parts[2]) || !add("offsets", parts[3]))
      return std::nullopt;
    return finish(wrapper_description("torch.nested"));
  }

  // (storage, offset, sizes, strides, (scheme, scale, zero point), requires_grad, hooks). Per channel, the scheme is
  // (scheme, scales, zero points, axis).
  std::optional<wrapper_parts> quantized(const pickle::value& value) {
    const auto integers = item_.quantized_integers(value);
    const pickle::items parts = value.args().items();
    if (!integers || parts.size() != 7 || parts[4].kind() != pickle::kind::tuple || parts[4].size() < 3)
      return std::nullopt;
    components_.push_back({"int_repr", *integers});
    const pickle::items scheme = parts[4].items();
    const auto* const known = find_quantized_storage(parts[0].persistent_id().items()[1].global_name());
    const auto requires_grad = parts[5].as_bool();
    if (!requires_grad || (*requires_grad && requires_grad_)) return std::nullopt;
    const bool by_channel = scheme[0].is_global("torch", "per_channel_affine");
    wrapper_description made(by_channel ? "torch.per_channel_affine" : "torch.per_tensor_affine");
    made.add_text("dtype", known->name);
    if (by_channel) {
      if (scheme.size() != 4 || !scheme[3].as_int() || !add("scales", scheme[1]) || !add("zero_points", scheme[2]))
        return std::nullopt;
      made.add_number("axis", *scheme[3].as_int());
    } else {
      if (!scheme[0].is_global("torch", "per_tensor_affine") || scheme.size() != 3 || !scheme[1].as_float() ||
          !scheme[2].as_int())
        return std::nullopt;
      made.add("scale", scheme[1]);
      made.add("zero_point", scheme[2]);
    }
    if (*requires_grad) made.add_flag("requires_grad", true);
    return finish(std::move(made));
  }

  // (_rebuild_njt, class, (arguments by name,), state). The state repeats the arguments, but only it tells whether the
  // tensor is a parameter. Lengths are stored as the sizes of empty tensors.
  std::optional<wrapper_parts> jagged(const pickle::value& args) {
    const pickle::value arguments = args.items()[2], state = args.items()[3];
    if (!args.items()[1].is_global("torch.nested._internal.nested_tensor", "NestedTensor") || requires_grad_ ||
        arguments.size() != 1 || state.kind() != pickle::kind::dict)
      return std::nullopt;
    const pickle::value given = arguments.items()[0];
    const pickle::value lengths = given.find("lengths"), known = given.find("_metadata_cache");
    const auto ragged = given.find("_ragged_idx").as_int();
    const auto requires_grad = given.find("requires_grad").as_bool();
    if (given.size() != 6 || !add("values", given.find("values")) || !add("offsets", given.find("offsets")) ||
        !ragged || !requires_grad || known.kind() != pickle::kind::dict)
      return std::nullopt;
    if (!lengths.is_none() && !add("lengths", lengths)) return std::nullopt;
    wrapper_description made("torch.jagged");
    made.add_number("ragged_dimension", *ragged);
    for (const pickle::pair pair : known.pairs()) {
      const auto tensor = item_.tensor_of(pair.value);
      const bool is_least = pair.key.text() == "min_seqlen";
      if (!tensor || (!is_least && pair.key.text() != "max_seqlen")) return std::nullopt;
      const extents& sizes = item_.tensors()[*tensor].sizes;
      if (sizes.rank() != 2 || sizes[1] != 0) return std::nullopt;
      made.add_number(is_least ? "shortest" : "longest", sizes[0]);
    }
    for (const pickle::pair pair : state.pairs())
      if (!is_known_of_jagged(pair.key.text().value_or(""))) return std::nullopt;
    if (state.find("_is_param")) made.add_flag("parameter", true);
    made.add_flag("requires_grad", *requires_grad);
    return std::move(made).finish(item_, std::move(components_));
  }

  static bool is_known_of_jagged(std::string_view name) {
    constexpr std::string_view known[] = {"_values",     "_offsets",        "_lengths",
                                          "_ragged_idx", "_metadata_cache", "_dynamo_propagated_dynamic_indices",
                                          "_is_param"};
    return std::find(std::begin(known), std::end(known), name) != std::end(known);
  }

  // (_rebuild_wrapper_subclass, class, (class, dtype, size, strides, offset, layout, device, requires_grad), state)
  std::optional<wrapper_parts> subclass_of(const pickle::value& args) {
    const std::string type = type_name(args.items()[1]);
    const wrapper_class* const known = find_wrapper_class(type);
    const pickle::value made_of = args.items()[2], state = args.items()[3];
    if (known == nullptr || made_of.size() != 8 || state.kind() != pickle::kind::dict) return std::nullopt;
    const auto requires_grad = made_of.items()[7].as_bool();
    if (made_of.items()[4].as_int() != 0 || !requires_grad || (*requires_grad && requires_grad_)) return std::nullopt;
    std::vector<pickle::pair> settings;
    std::vector<std::string_view> names;
    for (const pickle::pair pair : state.pairs()) {
      const auto name = pair.key.text();
      if (!name) return std::nullopt;
      names.push_back(*name);
      if (item_.tensor_of(pair.value)) {
        if (std::find(known->tensors.begin(), known->tensors.end(), *name) == known->tensors.end()) return std::nullopt;
        add(*name, pair.value);
      } else if (holds_tensors(item_, pair.value)) {
        return std::nullopt;
      } else {
        settings.push_back(pair);
      }
    }
    for (const std::string_view needed : known->tensors.first(known->needed))
      if (std::none_of(components_.begin(), components_.end(),
                       [&](const wrapper_component& one) { return one.name == needed; }))
        return std::nullopt;
    wrapper_description made(type);
    made.add("dtype", made_of.items()[1]);
    made.add("size", made_of.items()[2]);
    made.add("strides", made_of.items()[3]);
    made.add_settings(settings);
    made.add_names("state", names);
    if (*requires_grad) made.add_flag("requires_grad", true);
    return finish(std::move(made));
  }

  const torch_file::item& item_;
  std::optional<bool> requires_grad_;
  std::vector<wrapper_component> components_;
};

}  // namespace

std::optional<wrapper_parts> take_wrapper_apart(const torch_file::item& item, const pickle::value& value) {
  if (!value.is_record_of("torch._utils", "_rebuild_parameter")) return wrapper_reader(item, std::nullopt).read(value);
  const auto requires_grad = argument_of(value, 1).as_bool();
  if (!requires_grad) return std::nullopt;
  return wrapper_reader(item, requires_grad).read(argument_of(value, 0));
}

}  // namespace shardmesh::torch_file
