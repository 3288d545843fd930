// SPDX-License-Identifier: Apache-2.0
// Reads fields of pickled DCP metadata.
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
module shardmesh.dcp;

import :pickled_fields;

namespace shardmesh::dcp {
namespace {

// Returns the class of a record, whatever the protocol: protocols 0 and 1 go through copyreg._reconstructor(cls,
// object, None).
pickle::value class_of(pickle::value value) {
  if (value.kind() != pickle::kind::record) return {};
  const pickle::value callable = value.callable();
  if (callable.is_global("copyreg", "_reconstructor") || callable.is_global("copy_reg", "_reconstructor"))
    return value.args().items().empty() ? pickle::value{} : value.args().items()[0];
  return callable;
}

}  // namespace

std::string class_text(pickle::value value) {
  const pickle::value type = class_of(value);
  if (!type) return std::string(name(value.kind()));
  return fmt::format("{}.{}", type.global_module(), type.global_name());
}

std::string_view class_name(pickle::value value) {
  return class_of(value).global_name();
}

bool is_metadata_class(pickle::value value, std::string_view type) {
  const pickle::value found = class_of(value);
  return found.is_global("torch.distributed.checkpoint.metadata", type) ||
         found.is_global("torch.distributed._shard.checkpoint.metadata", type);
}

result<extents> read_sizes(pickle::value value, std::string_view what) {
  if (value.is_record_of("torch", "Size")) {
    const pickle::items arguments = value.args().items();
    if (arguments.empty()) return extents{};
    value = arguments[0];
  }
  if (value.kind() != pickle::kind::tuple && value.kind() != pickle::kind::list)
    return fail(errc::bad_format, fmt::format("its {} is not a torch.Size", what))
        .with_values("", std::string(name(value.kind())));
  if (value.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("its {} has too many dimensions", what))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", value.size()));
  extents sizes;
  for (const pickle::value item : value.items()) {
    const auto number = item.as_int();
    if (!number || *number < 0)
      return fail(errc::bad_format, fmt::format("its {} holds something that is not a size", what))
          .with_values("integers of 0 or more", item.decimal().value_or(std::string(name(item.kind()))));
    sizes.push_back(*number);
  }
  return sizes;
}

pickle::value property(pickle::value properties, std::size_t index, std::string_view field) {
  const pickle::value state = properties.state();
  if (state.kind() == pickle::kind::tuple) return index < state.size() ? state.items()[index] : pickle::value{};
  return properties.attribute(field);
}

std::int32_t read_memory_format(pickle::value value) {
  const pickle::items arguments = value.args().items();
  if (!arguments.empty() && arguments[0].as_int()) return static_cast<std::int32_t>(*arguments[0].as_int());
  if (arguments.size() == 2 && arguments[1].text() == "TORCH_CHANNELS_LAST") return 1;
  if (arguments.size() == 2 && arguments[1].text() == "TORCH_PRESERVE_FORMAT") return 2;
  return 0;
}

bool is_other_torch_dtype(std::string_view name) {
  static constexpr std::array<std::string_view, 20> names{
      "bit",  "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "int1",  "int2",  "int3",  "int4",
      "int5", "int6",  "int7",   "uint1",  "uint2",    "uint3",    "uint4", "uint5", "uint6", "uint7"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<extents> read_strides(pickle::value strides, std::size_t rank) {
  if (strides.kind() != pickle::kind::tuple || strides.size() != rank) return std::nullopt;
  auto read = read_sizes(strides, "strides");
  if (!read) return std::nullopt;
  return *read;
}

std::optional<std::string> read_relative_path(pickle::value value) {
  if (const auto text = value.text()) return std::string(*text);
  if (!value.callable().global_module().starts_with("pathlib")) return std::nullopt;
  std::filesystem::path joined;
  for (const pickle::value part : value.args().items()) joined /= std::string(part.text().value_or(""));
  return joined.string();
}

}  // namespace shardmesh::dcp
