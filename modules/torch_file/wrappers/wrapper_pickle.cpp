// SPDX-License-Identifier: Apache-2.0
// Pickles wrapping tensors as torch.save does. The records name only known functions and classes, whatever the
// description contains.
// Source: torch/_tensor.py (Tensor._reduce_ex_internal), torch/nested/_internal/nested_tensor.py, PyTorch 2.13
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :tensor_record;
import :wrapper_form;
import :wrapper_setting;

namespace shardmesh::torch_file {
namespace {

class wrapper_pickler {
 public:
  explicit wrapper_pickler(const wrapper_form& form) : form_(form) {}

  result<std::vector<std::byte>> run() {
    if (form_.parameter) {
      out_.global("torch._utils", "_rebuild_parameter");
      out_.begin_tuple();
    }
    SHARDMESH_TRY(write());
    if (form_.parameter) {
      out_.boolean(*form_.parameter);
      write_no_hooks(out_);
      out_.end_tuple();
      out_.reduce();
    }
    return std::move(out_).finish();
  }

  // Number of storages without bytes that follow those of the components. Valid after `run`.
  std::size_t empty_storages() const { return empty_storages_; }

 private:
  result<void> write() {
    switch (form_.family) {
      case wrapper_family::coo:
      case wrapper_family::compressed:
        return write_sparse(), result<void>{};
      case wrapper_family::nested:
        return write_nested(), result<void>{};
      case wrapper_family::jagged:
        return write_jagged(), result<void>{};
      case wrapper_family::quantized:
        return write_quantized(), result<void>{};
      case wrapper_family::subclass:
        return write_subclass();
    }
    return {};
  }

  void write_component(std::size_t i) {
    const component_form& component = form_.components[i];
    write_tensor_record(out_, component.type, component.shape, component.strides, i);
  }

  bool write_component(std::string_view name) {
    for (std::size_t i = 0; i < form_.components.size(); ++i)
      if (form_.components[i].name == name) return write_component(i), true;
    return false;
  }

  void write_layout(std::string_view layout) {
    out_.global("torch.serialization", "_get_layout");
    out_.begin_tuple();
    out_.text(layout);
    out_.end_tuple();
    out_.reduce();
  }

  void write_sparse() {
    out_.global("torch._utils", "_rebuild_sparse_tensor");
    out_.begin_tuple();
    write_layout(form_.type);
    out_.begin_tuple();
    for (std::size_t i = 0; i < form_.components.size(); ++i) write_component(i);
    out_.global("torch", "Size");
    out_.begin_tuple();
    write_numbers(out_, form_.size);
    out_.end_tuple();
    out_.reduce();
    if (form_.is_coalesced) out_.boolean(*form_.is_coalesced);
    out_.end_tuple();
    out_.end_tuple();
    out_.reduce();
  }

  void write_nested() {
    out_.global("torch._utils", "_rebuild_nested_tensor");
    out_.begin_tuple();
    for (std::size_t i = 0; i < form_.components.size(); ++i) write_component(i);
    out_.end_tuple();
    out_.reduce();
  }

  // _rebuild_from_type_v2(_rebuild_njt, class, (arguments by name,), state)
  void write_jagged() {
    constexpr std::string_view module_name = "torch.nested._internal.nested_tensor";
    out_.global("torch._tensor", "_rebuild_from_type_v2");
    out_.begin_tuple();
    out_.global(module_name, "_rebuild_njt");
    out_.global(module_name, "NestedTensor");
    out_.begin_tuple();
    out_.begin_dict();
    for (const std::string_view name : {"values", "offsets", "lengths"}) {
      out_.text(name);
      if (!write_component(name)) out_.none();
    }
    out_.text("_ragged_idx");
    out_.integer(form_.ragged_dimension);
    out_.text("_metadata_cache");
    out_.begin_dict();
    write_length("min_seqlen", form_.shortest);
    write_length("max_seqlen", form_.longest);
    out_.end_dict();
    out_.text("requires_grad");
    out_.boolean(form_.requires_grad);
    out_.end_dict();
    out_.end_tuple();
    out_.begin_dict();
    if (form_.is_parameter) {
      out_.text("_is_param");
      out_.boolean(true);
    }
    out_.end_dict();
    out_.end_tuple();
    out_.reduce();
  }

  // PyTorch stores a length as the size of an empty tensor.
  void write_length(std::string_view key, std::optional<std::int64_t> length) {
    if (!length) return;
    out_.text(key);
    write_tensor_record(out_, dtype::float32, {*length, 0}, {1, 1}, form_.components.size() + empty_storages_++);
  }

  void write_quantized() {
    const component_form& integers = form_.components[0];
    out_.global("torch._utils", "_rebuild_qtensor");
    out_.begin_tuple();
    write_storage_reference(out_, "torch", form_.quantized->storage_class, 0, *checked_volume(integers.shape));
    out_.integer(0);
    write_numbers(out_, integers.shape);
    write_numbers(out_, integers.strides);
    out_.begin_tuple();
    out_.global("torch", std::string_view(form_.type).substr(std::string_view("torch.").size()));
    if (form_.axis < 0) {
      out_.floating(*form_.scale.as_float());
      out_.integer(*form_.zero_point.as_int());
    } else {
      write_component(1);
      write_component(2);
      out_.integer(form_.axis);
    }
    out_.end_tuple();
    out_.boolean(form_.requires_grad);
    write_no_hooks(out_);
    out_.end_tuple();
    out_.reduce();
  }

  // _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size, strides, offset, layout, device,
  // requires_grad), state)
  result<void> write_subclass() {
    const wrapper_class& known = *form_.subclass;
    out_.global("torch._tensor", "_rebuild_from_type_v2");
    out_.begin_tuple();
    out_.global("torch._utils", "_rebuild_wrapper_subclass");
    out_.global(known.module_name, known.name);
    out_.begin_tuple();
    out_.global(known.module_name, known.name);
    out_.global("torch", name(form_.element_type));
    write_numbers(out_, form_.size);
    write_numbers(out_, form_.strides);
    out_.integer(0);
    write_layout("torch.strided");
    out_.global("torch", "device");
    out_.begin_tuple();
    out_.text("cpu");
    out_.end_tuple();
    out_.reduce();
    out_.boolean(form_.requires_grad);
    out_.end_tuple();
    out_.begin_dict();
    for (const pickle::value name : form_.order.items()) {
      out_.text(*name.text());
      if (write_component(*name.text())) continue;
      SHARDMESH_TRY(write_setting(out_, form_.attributes.find(*name.text())));
    }
    out_.end_dict();
    out_.end_tuple();
    out_.reduce();
    return {};
  }

  const wrapper_form& form_;
  std::size_t empty_storages_ = 0;
  pickle::writer out_{2};
};

}  // namespace

result<std::vector<std::byte>> archive_of_wrapper(const wrapper_form& form,
                                                  std::span<const std::vector<std::byte>> bytes) {
  SHARDMESH_TRY(check_wrapper_contents(form, bytes));
  wrapper_pickler pickler(form);
  SHARDMESH_TRY(const std::vector<std::byte> data_pkl, pickler.run());
  torch_file::archive places;
  std::vector<std::byte> made = places.head(data_pkl);
  std::size_t expected = made.size() + 1024;
  for (const std::vector<std::byte>& component : bytes) expected += component.size() + 512;
  made.reserve(expected);  // so that large data is not copied while the vector grows
  const auto append = [&](std::span<const std::byte> more) { made.insert(made.end(), more.begin(), more.end()); };
  for (std::size_t i = 0; i < bytes.size() + pickler.empty_storages(); ++i) {
    const std::span<const std::byte> data = i < bytes.size() ? std::span(bytes[i]) : std::span<const std::byte>();
    append(places.begin_record(fmt::format("data/{}", i), static_cast<std::int64_t>(data.size())));
    append(data);
    append(places.end_record(crc32_of(data)));
  }
  append(places.tail());
  return made;
}

}  // namespace shardmesh::torch_file
