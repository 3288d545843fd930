// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <optional>
#include <utility>
module shardmesh.torch_file;

import :item_reader;

namespace shardmesh::torch_file {

result<item> item::open(const byte_source& source, const item_options& options) {
  SHARDMESH_TRY(const auto windows, windowed_source::open(source));
  auto item = item_reader(windows, options).open();
  if (!item) {
    error problem = std::move(item).error();
    return problem.file.empty() ? std::move(problem).with_file(source.name()) : problem;
  }
  return item;
}

std::optional<std::size_t> item::tensor_of(const pickle::value& value) const {
  if (value.kind() != pickle::kind::record) return std::nullopt;
  const auto found = tensor_of_.find(value.identity());
  return found == tensor_of_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::size_t> item::quantized_integers(const pickle::value& value) const {
  const bool is_parameter = is_rebuild(value.callable(), "_rebuild_parameter");
  const auto found = tensor_of_.find((is_parameter ? argument_of(value, 0) : value).args().identity());
  return found == tensor_of_.end() ? std::nullopt : std::optional(found->second);
}

bool item::is_opaque_tensor(const pickle::value& value) const {
  return is_any_rebuild(value.callable()) && !tensor_of(value);
}

}  // namespace shardmesh::torch_file
