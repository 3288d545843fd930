// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
module shardmesh.torch_checkpointing;

import :sharding_fields;

namespace shardmesh::torch_checkpointing {
namespace {

constexpr std::size_t most_fields = 32;  // in a dict that is searched by key for every tensor

error damaged(std::string_view field, std::string_view expected) {
  return fail(errc::bad_format, fmt::format("its {} cannot be used", field)).with_values(std::string(expected), "");
}

result<dtype> dtype_of(const pickle::value& text) {
  const std::string_view spelled = text.text().value_or("");
  // Quantized tensors are not read as elements, so only their presence matters.
  constexpr std::string_view quantized[] = {"torch.qint8", "torch.quint8", "torch.qint32", "torch.quint4x2",
                                            "torch.quint2x4"};
  if (std::find(std::begin(quantized), std::end(quantized), spelled) != std::end(quantized)) return dtype::undefined;
  const auto known = spelled.starts_with("torch.") ? parse_dtype(spelled.substr(6)) : std::nullopt;
  if (!known) return fail(errc::unsupported, "is of an unknown dtype").with_values("", escaped(spelled));
  return *known;
}

result<placement> placement_of(const pickle::value& spec, std::size_t rank) {
  const std::string_view type = spec.find("type").text().value_or("");
  if (type == "Replicate") return placement::replicate();
  if (type != "Shard" && type != "StridedShard")
    return fail(errc::unsupported, "has an unknown placement")
        .with_values("Shard, StridedShard, or Replicate", escaped(type));
  const auto dim = spec.find("dim").as_int();
  if (!dim || *dim < -static_cast<std::int64_t>(rank) || *dim >= static_cast<std::int64_t>(rank))
    return damaged("placement", "a dimension of the tensor");
  if (type == "Shard") return placement::shard(static_cast<std::int32_t>(*dim));
  const auto factor = spec.find("split_factor").as_int();
  if (!factor) return damaged("placement", "a split factor");
  return placement::strided_shard(static_cast<std::int32_t>(*dim), *factor);
}

// Ignores the names of mesh dimensions: they do not affect placement.
result<device_mesh> mesh_of(const pickle::value& spec, std::int32_t world_size, known_meshes& meshes) {
  if (const auto known = meshes.find(spec.identity()); known != meshes.end()) return known->second;
  if (spec.size() > most_fields) return damaged("mesh_spec", "a mesh");
  SHARDMESH_TRY(const std::vector<std::int64_t> sizes, integers_of(spec.find("mesh_shape"), "mesh_shape"));
  SHARDMESH_TRY(std::vector<std::int32_t> ranks, ranks_of(spec.find("mesh_data"), world_size, "mesh_data"));
  const std::size_t count = ranks.size();
  SHARDMESH_TRY(device_mesh mesh, device_mesh::make(sizes, {}, std::move(ranks)));
  if (static_cast<std::size_t>(mesh.size()) != count) return damaged("mesh_data", "as many ranks as mesh_shape says");
  meshes.emplace(spec.identity(), mesh);
  return mesh;
}

result<void> read_dtensor(const pickle::value& data, std::int32_t world_size, known_meshes& meshes, sharding& into) {
  SHARDMESH_TRY(device_mesh mesh, mesh_of(data.find("mesh_spec"), world_size, meshes));
  std::vector<placement> placements;
  const pickle::items specs = sequence_items(data.find("placements"));
  if (specs.size() != mesh.rank()) return damaged("placements", fmt::format("{} of them", mesh.rank()));
  for (const pickle::value spec : specs) {
    SHARDMESH_TRY(const placement one, placement_of(spec, into.shape.rank()));
    placements.push_back(one);
  }
  SHARDMESH_TRY(into.laid_out, layout::make(std::move(mesh), std::move(placements), into.shape));
  return {};
}

result<void> read_boxes(const pickle::value& data, sharding& into) {
  const pickle::items globals = sequence_items(data.find("global_offsets")),
                      locals = sequence_items(data.find("local_offsets")),
                      sizes = sequence_items(data.find("local_sizes"));
  if (globals.size() != locals.size() || globals.size() != sizes.size())
    return damaged("boxes", "as many global_offsets as local_offsets and local_sizes");
  for (std::size_t i = 0; i < globals.size(); ++i) {
    placed_box one;
    SHARDMESH_TRY(one.where.offsets, extents_of(globals[i], "global_offsets"));
    SHARDMESH_TRY(one.where.sizes, extents_of(sizes[i], "local_sizes"));
    SHARDMESH_TRY(one.local_offsets, extents_of(locals[i], "local_offsets"));
    const bool fits = one.where.offsets.rank() == into.shape.rank() && one.where.sizes.rank() == into.shape.rank() &&
                      one.local_offsets.rank() == into.shape.rank() && is_well_formed(one.where) &&
                      is_well_formed({one.local_offsets, one.where.sizes}) &&
                      lies_within(one.where, box::whole(into.shape));
    if (!fits) return damaged("boxes", fmt::format("boxes within {}", to_string(into.shape)));
    into.boxes.push_back(one);
  }
  return {};
}

}  // namespace

result<std::vector<std::int64_t>> integers_of(const pickle::value& list, std::string_view field) {
  const bool is_list = list.kind() == pickle::kind::list || list.kind() == pickle::kind::tuple;
  if (!is_list) return damaged(field, "a list of integers");
  std::vector<std::int64_t> numbers;
  for (const pickle::value item : list.items()) {
    const auto number = item.as_int();
    if (!number) return damaged(field, "a list of integers");
    numbers.push_back(*number);
  }
  return numbers;
}

result<extents> extents_of(const pickle::value& list, std::string_view field) {
  SHARDMESH_TRY(const std::vector<std::int64_t> numbers, integers_of(list, field));
  if (numbers.size() > max_rank) return damaged(field, fmt::format("at most {} dimensions", max_rank));
  for (const std::int64_t number : numbers)
    if (number < 0) return damaged(field, "numbers that are not negative");
  return extents(numbers);
}

result<std::vector<std::int32_t>> ranks_of(const pickle::value& list, std::int32_t world_size, std::string_view field) {
  SHARDMESH_TRY(const std::vector<std::int64_t> numbers, integers_of(list, field));
  std::vector<std::int32_t> ranks;
  for (const std::int64_t number : numbers) {
    if (number < 0 || number >= world_size) return damaged(field, fmt::format("ranks below {}", world_size));
    ranks.push_back(static_cast<std::int32_t>(number));
  }
  return ranks;
}

result<sharding> sharding_of(const pickle::value& packed, std::int32_t world_size, known_meshes& meshes) {
  const std::string_view type = packed.find("type").text().value_or("");
  const pickle::value data = packed.find("data");
  if (type != "DTensorShardingMetadata" && type != "default_tensor_v1")
    return fail(errc::unsupported, "is described by an unknown kind of sharding metadata")
        .with_values("DTensorShardingMetadata or default_tensor_v1", escaped(type));
  if (packed.size() > most_fields || data.size() > most_fields) return damaged("sharding", "its fields");
  sharding made;
  SHARDMESH_TRY(made.shape, extents_of(data.find("global_shape"), "global_shape"));
  SHARDMESH_TRY(made.type, dtype_of(data.find("dtype")));
  const auto count = checked_volume(made.shape);
  if (!count || (made.type != dtype::undefined && !size_bytes(made.type, *count)))
    return damaged("global_shape", "a size that fits in 64 bits");
  if (type == "default_tensor_v1")
    SHARDMESH_TRY(read_boxes(data, made));
  else
    SHARDMESH_TRY(read_dtensor(data, world_size, meshes, made));
  return made;
}

// Returns Python's str() of a float.
static std::string float_key(double value) {
  pickle::writer out(2);
  out.floating(value);
  const auto parsed = pickle::graph::parse(std::move(out).finish());
  return parsed ? pickle::python_str(parsed->root()).value_or("") : std::string();
}

result<path> path_of_json(std::string_view text) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  const auto refuse = [&] {
    return fail(errc::bad_format, "a path is not a list of names and indices").with_values("", escaped(text));
  };
  if (!parsed.is_array()) return refuse();
  path where;
  for (const nlohmann::json& step : parsed) {
    if (step.is_string())
      where.push_back(step.get<std::string>());
    else if (step.is_number_integer() && step.get<std::int64_t>() >= 0)
      where.push_back(step.get<std::int64_t>());
    else if (step.is_number() || step.is_boolean() || step.is_null())  // dict keys, as str() spells them
      where.push_back(step.is_boolean()        ? std::string(step.get<bool>() ? "True" : "False")
                      : step.is_null()         ? std::string("None")
                      : step.is_number_float() ? float_key(step.get<double>())
                                               : step.dump());
    else
      return refuse();
  }
  return where;
}

}  // namespace shardmesh::torch_checkpointing
