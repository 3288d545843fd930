// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_file;

import :wrapper_description;
import :wrapper_setting;

namespace shardmesh::torch_file {

wrapper_description::wrapper_description(std::string_view type) {
  out_.begin_dict();
  out_.text("type");
  out_.text(type);
}

void wrapper_description::add(std::string_view key, const pickle::value& value) {
  out_.text(key);
  if (!out_.value(value)) is_writable_ = false;
}

void wrapper_description::add_flag(std::string_view key, bool value) {
  out_.text(key);
  out_.boolean(value);
}

void wrapper_description::add_number(std::string_view key, std::int64_t value) {
  out_.text(key);
  out_.integer(value);
}

void wrapper_description::add_text(std::string_view key, std::string_view value) {
  out_.text(key);
  out_.text(value);
}

void wrapper_description::add_settings(std::span<const pickle::pair> pairs) {
  out_.text("attributes");
  out_.begin_dict();
  for (const pickle::pair& pair : pairs) {
    out_.text(*pair.key.text());
    spell_setting(out_, pair.value);
  }
  out_.end_dict();
}

void wrapper_description::add_names(std::string_view key, std::span<const std::string_view> names) {
  out_.text(key);
  out_.begin_list();
  for (const std::string_view name : names) out_.text(name);
  out_.end_list();
}

std::optional<wrapper_parts> wrapper_description::finish(const torch_file::item& item,
                                                         std::vector<wrapper_component> components) && {
  out_.text("components");
  out_.begin_dict();
  for (const wrapper_component& component : components) {
    const torch_file::tensor& tensor = item.tensors()[component.tensor];
    out_.text(component.name);
    out_.begin_dict();
    add_text("dtype", name(tensor.type));
    add_list("shape", tensor.sizes);
    if (tensor.strides != contiguous_strides(tensor.sizes)) add_list("strides", tensor.strides);
    out_.end_dict();
  }
  out_.end_dict();
  out_.end_dict();
  if (!is_writable_) return std::nullopt;
  return wrapper_parts{std::move(components), object_archive(std::move(out_).finish())};
}

void wrapper_description::add_list(std::string_view key, const extents& numbers) {
  out_.text(key);
  out_.begin_list();
  for (const std::int64_t number : numbers) out_.integer(number);
  out_.end_list();
}

}  // namespace shardmesh::torch_file
