// SPDX-License-Identifier: Apache-2.0
// Three families of pickles: sparse tensors and nested tensors of PyTorch, and torchao's subclasses, whose state is a
// dict of tensors and settings. Whatever is not exactly of a known form is not taken apart: a part that was overlooked
// would be lost.
module;
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :known_wrapper;
import :object_parts;

namespace shardmesh::torch_file {
namespace {

struct sparse_layout {
  std::string_view name;
  std::array<std::string_view, 2> compressed;  // the names of its index tensors
};
constexpr sparse_layout compressed_layouts[] = {{"torch.sparse_csr", {"crow_indices", "col_indices"}},
                                                {"torch.sparse_bsr", {"crow_indices", "col_indices"}},
                                                {"torch.sparse_csc", {"ccol_indices", "row_indices"}},
                                                {"torch.sparse_bsc", {"ccol_indices", "row_indices"}}};

// torchao's classes and the tensors that their states hold; another tensor in a state is of a version that we do not
// know. The first two are always there.
struct subclass {
  std::string_view name;
  std::span<const std::string_view> tensors;
};
constexpr std::string_view int8_tensors[] = {"qdata",           "scale",         "zero_point",
                                             "act_quant_scale", "act_pre_scale", "act_quant_zero_point"};
constexpr std::string_view float8_tensors[] = {"qdata", "scale", "act_quant_scale"};
constexpr std::string_view int4_tensors[] = {"qdata", "scale", "zero_point", "act_pre_scale"};
constexpr subclass subclasses[] = {{"torchao.quantization.Int8Tensor", int8_tensors},
                                   {"torchao.quantization.Float8Tensor", float8_tensors},
                                   {"torchao.quantization.Int4Tensor", int4_tensors}};

// The description while it is written: a dict, its components last.
class description {
 public:
  explicit description(std::string_view type) {
    out_.begin_dict();
    out_.text("type");
    out_.text(type);
  }
  void add(std::string_view key, const pickle::value& value) {
    out_.text(key);
    if (!out_.value(value)) is_writable_ = false;
  }
  void add(std::string_view key, bool value) {
    out_.text(key);
    out_.boolean(value);
  }
  // Of a dict. A member of an enum is the text of its dotted name: destinations without pickles keep that whole.
  void add(std::string_view key, std::span<const pickle::pair> pairs) {
    out_.text(key);
    out_.begin_dict();
    for (const pickle::pair& pair : pairs) {
      if (!out_.value(pair.key)) is_writable_ = false;
      const auto member = is_builtin(pair.value, "getattr") ? global_text(pair.value) : std::nullopt;
      if (member)
        out_.text(*member);
      else if (!out_.value(pair.value))
        is_writable_ = false;
    }
    out_.end_dict();
  }
  std::optional<wrapper_parts> finish(std::vector<wrapper_component> components) && {
    out_.text("components");
    out_.begin_list();
    for (const wrapper_component& component : components) out_.text(component.name);
    out_.end_list();
    out_.end_dict();
    if (!is_writable_) return std::nullopt;
    return wrapper_parts{std::move(components), object_archive(std::move(out_).finish())};
  }

 private:
  pickle::writer out_{2};
  bool is_writable_ = true;
};

class wrapper_reader {
 public:
  wrapper_reader(const torch_file::item& item, std::optional<bool> requires_grad)
      : item_(item), requires_grad_(requires_grad) {}

  std::optional<wrapper_parts> read(const pickle::value& value) {
    const pickle::value callable = value.callable();
    if (value.state() || value.appended() || value.assigned()) return std::nullopt;
    if (callable.is_global("torch._utils", "_rebuild_sparse_tensor")) return sparse(value.args());
    if (callable.is_global("torch._utils", "_rebuild_nested_tensor")) return nested(value.args());
    if (callable.is_global("torch._tensor", "_rebuild_from_type_v2")) return subclass_of(value.args());
    return std::nullopt;
  }

 private:
  // False when it is no tensor that we read.
  bool add(std::string_view name, const pickle::value& value) {
    const auto tensor = item_.tensor_of(value);
    if (tensor) components_.push_back({std::string(name), *tensor});
    return tensor.has_value();
  }

  std::optional<wrapper_parts> finish(description made) {
    if (requires_grad_) made.add("parameter", true), made.add("requires_grad", *requires_grad_);
    return std::move(made).finish(std::move(components_));
  }

  static bool is_size(const pickle::value& value) { return value.is_record_of("torch", "Size"); }

  // (layout, data): of COO indices, values, size and since 2.1 is_coalesced; else two tensors of indices, values, size.
  std::optional<wrapper_parts> sparse(const pickle::value& args) {
    if (args.size() != 2) return std::nullopt;
    const pickle::value layout = args.items()[0], data = args.items()[1];
    if (!layout.is_record_of("torch.serialization", "_get_layout") || data.kind() != pickle::kind::tuple)
      return std::nullopt;
    const std::string name(argument_of(layout, 0).text().value_or(""));
    const pickle::items parts = data.items();
    description made(name);
    if (name == "torch.sparse_coo") {
      if (data.size() < 3 || data.size() > 4 || !add("indices", parts[0]) || !add("values", parts[1]) ||
          !is_size(parts[2]))
        return std::nullopt;
      made.add("size", parts[2]);
      if (data.size() == 4) {
        const auto is_coalesced = parts[3].as_bool();
        if (!is_coalesced) return std::nullopt;
        made.add("is_coalesced", *is_coalesced);
      }
      return finish(std::move(made));
    }
    const auto* const known = std::find_if(std::begin(compressed_layouts), std::end(compressed_layouts),
                                           [&](const sparse_layout& one) { return one.name == name; });
    if (known == std::end(compressed_layouts) || data.size() != 4 || !add(known->compressed[0], parts[0]) ||
        !add(known->compressed[1], parts[1]) || !add("values", parts[2]) || !is_size(parts[3]))
      return std::nullopt;
    made.add("size", parts[3]);
    return finish(std::move(made));
  }

  // A buffer and the sizes, strides and offsets of the tensors in it.
  std::optional<wrapper_parts> nested(const pickle::value& args) {
    if (args.size() != 4) return std::nullopt;
    const pickle::items parts = args.items();
    if (!add("buffer", parts[0]) || !add("sizes", parts[1]) || !add("strides", parts[2]) || !add("offsets", parts[3]))
      return std::nullopt;
    return finish(description("torch.nested"));
  }

  // (_rebuild_wrapper_subclass, class, (class, dtype, size, strides, offset, layout, device, requires_grad), state)
  std::optional<wrapper_parts> subclass_of(const pickle::value& args) {
    if (args.size() != 4 || !args.items()[0].is_global("torch._utils", "_rebuild_wrapper_subclass"))
      return std::nullopt;
    const std::string type = type_name(args.items()[1]);
    const auto* const known = std::find_if(std::begin(subclasses), std::end(subclasses),
                                           [&](const subclass& one) { return one.name == type; });
    const pickle::value made_of = args.items()[2], state = args.items()[3];
    if (known == std::end(subclasses) || made_of.size() < 3 || state.kind() != pickle::kind::dict) return std::nullopt;
    std::vector<pickle::pair> settings;
    for (const pickle::pair pair : state.pairs()) {
      const auto name = pair.key.text();
      if (!name) return std::nullopt;
      if (item_.tensor_of(pair.value)) {
        if (std::find(known->tensors.begin(), known->tensors.end(), *name) == known->tensors.end()) return std::nullopt;
        add(*name, pair.value);
      } else if (holds_tensors(item_, pair.value)) {
        return std::nullopt;
      } else {
        settings.push_back(pair);
      }
    }
    for (const std::string_view needed : known->tensors.first(2))
      if (std::none_of(components_.begin(), components_.end(),
                       [&](const wrapper_component& one) { return one.name == needed; }))
        return std::nullopt;
    description made(type);
    made.add("dtype", made_of.items()[1]);
    made.add("size", made_of.items()[2]);
    made.add("attributes", settings);
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
