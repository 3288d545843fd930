// SPDX-License-Identifier: Apache-2.0
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

import shardmesh.layout;

namespace shardmesh::torch_file {
namespace {

// A strided shard has as many boxes as its split factor, which is the size of other mesh dimensions. This bounds the
// boxes of a file that claims a huge mesh.
constexpr std::int64_t most_splits = std::int64_t{1} << 16;

error bad(std::string message) {
  return fail(errc::bad_format, std::move(message));
}

// Reports an invalid argument as a format error, because the argument came from the file.
error as_damage(error problem) {
  if (problem.code == errc::invalid_argument) problem.code = errc::bad_format;
  return problem;
}

// Decodes sizes or offsets from a torch.Size, a tuple, or a list.
result<extents> numbers_of(const pickle::value& value, std::string_view what) {
  const bool is_list =
      value.kind() == pickle::kind::list || value.kind() == pickle::kind::tuple || value.is_record_of("torch", "Size");
  const pickle::items items = pickle::sequence_items(value);
  if (!is_list) return bad(fmt::format("its {} are not a list of numbers", what));
  if (items.size() > max_rank)
    return fail(errc::rank_too_large, fmt::format("its {} have {} entries", what, items.size()))
        .with_values(fmt::format("at most {}", max_rank), fmt::format("{}", items.size()));
  extents numbers;
  for (const pickle::value item : items) {
    const auto number = item.as_int();
    if (!number || *number < 0) return bad(fmt::format("its {} hold a value that is not a size", what));
    numbers.push_back(*number);
  }
  return numbers;
}

// Returns the size of one mesh dimension: a number, or the sizes that were flattened into it.
result<std::int64_t> mesh_size(const pickle::value& shape) {
  if (const auto size = shape.as_int()) return *size;
  std::int64_t all = 1;
  for (const pickle::value part : shape.items()) {
    const auto size = part.as_int();  // nesting is one level deep, because PyTorch coalesces
    const auto product = size && *size > 0 ? checked_multiply(all, *size) : std::nullopt;
    if (!product) return bad("its mesh has an invalid size");
    all = *product;
  }
  return all;
}

// Returns the sizes of a pickled DeviceMesh, from its tensor of ranks (up to 2.8) or its layout.
result<extents> mesh_sizes(const torch_file::item& item, const pickle::value& mesh) {
  for (const std::string_view name : {"mesh", "_mesh"})
    if (const auto ranks = item.tensor_of(mesh.attribute(name))) return item.tensors()[*ranks].sizes;
  const pickle::value layout = mesh.attribute("_layout");
  extents sizes;
  const auto add = [&](const pickle::value& shape) -> result<void> {
    SHARDMESH_TRY(const std::int64_t size, mesh_size(shape));
    if (sizes.rank() == max_rank) return fail(errc::rank_too_large, "its mesh has too many dimensions");
    sizes.push_back(size);
    return {};
  };
  if (const pickle::value axes = layout.attribute("axes")) {  // since 2.13
    for (const pickle::value axis : axes.items()) SHARDMESH_TRY(add(axis.attribute("shape")));
    return sizes;
  }
  const pickle::value shape = layout.attribute("shape");
  if (!shape) return bad("its device mesh is of an unknown form");
  if (shape.as_int()) {
    SHARDMESH_TRY(add(shape));
  } else {
    for (const pickle::value part : shape.items()) SHARDMESH_TRY(add(part));
  }
  return sizes;
}

// Returns the mesh coordinate of the rank that saved the file; empty for a rank outside the mesh.
result<std::optional<extents>> coordinate_in(const pickle::value& mesh, const extents& sizes) {
  const pickle::value written = mesh.attribute("_coordinate_on_dim");
  if (!written) return bad("its device mesh does not say which rank saved it");
  if (written.is_none()) return std::optional<extents>();
  SHARDMESH_TRY(const extents coordinate, numbers_of(written, "mesh coordinates"));
  bool lies_within = coordinate.rank() == sizes.rank();
  for (std::size_t d = 0; lies_within && d < sizes.rank(); ++d) lies_within = coordinate[d] < sizes[d];
  if (lies_within) return std::optional(coordinate);
  return bad("its rank does not lie in its device mesh")
      .with_values(fmt::format("a coordinate in {}", to_string(sizes)), to_string(coordinate));
}

result<placement> placement_of(const pickle::value& value) {
  const std::string_view kind = value.callable().global_name();
  if (kind == "Replicate") return placement::replicate();
  if (kind == "Shard" || kind == "_StridedShard") {
    const auto dim = value.attribute("dim").as_int();
    if (!dim || *dim < -static_cast<std::int64_t>(max_rank) || *dim >= static_cast<std::int64_t>(max_rank))
      return bad("a placement cuts a dimension that does not exist");
    if (kind == "Shard") return placement::shard(static_cast<std::int32_t>(*dim));
    const auto factor = value.attribute("split_factor").as_int();
    if (!factor || *factor < 1) return bad("a strided shard has no split factor");
    return placement::strided_shard(static_cast<std::int32_t>(*dim), *factor);
  }
  if (kind == "Partial" || kind == "_Partial" || kind == "_NormPartial" || kind == "_MaskPartial")
    return fail(errc::unsupported, "DTensor that is Partial: its value is a reduction over ranks");
  return fail(errc::unsupported, fmt::format("DTensor with a placement {}", escaped(kind)));
}

result<std::vector<placement>> placements_of(const pickle::value& spec, std::int64_t ranks) {
  const pickle::value written = spec.attribute("placements");
  std::vector<placement> made;
  std::int64_t splits = 1;
  for (const pickle::value one : written.items()) {
    SHARDMESH_TRY(const placement p, placement_of(one));
    const auto product = checked_multiply(splits, p.split_factor);
    if (!product || *product > std::min(std::max<std::int64_t>(ranks, 1), most_splits))
      return bad("its strided shards have more pieces than any mesh has ranks");
    splits = *product;
    made.push_back(p);
  }
  const bool is_strided = splits > 1;
  // Since 2.9, a spec stores the order in which mesh dimensions cut a tensor dimension. Only strided shards can express
  // an order other than the mesh's, so without them such an order is refused.
  for (const pickle::value entry : pickle::sequence_items(spec.attribute("shard_order"))) {
    std::optional<std::int64_t> before;
    for (const pickle::value dim : pickle::argument_of(entry, 1).items()) {
      if (before && dim.as_int() && *dim.as_int() < *before && !is_strided)
        return fail(errc::unsupported, "DTensor whose dimensions are cut in another order than its mesh's");
      before = dim.as_int();
    }
  }
  return made;
}

// Finds an attribute of a tensor subclass, whose state is a dict or a pair of a dict and the slots.
pickle::value subclass_attribute(const pickle::value& state, std::string_view name) {
  if (state.kind() == pickle::kind::dict) return state.find(name);
  const pickle::items halves = state.items();
  if (halves.size() != 2) return {};
  const pickle::value found = halves[1].find(name);
  return found ? found : halves[0].find(name);
}

result<rank_part> dtensor_part(const torch_file::item& item, const pickle::value& state, rank_part made) {
  const pickle::value spec = subclass_attribute(state, "_spec");
  const pickle::value mesh = spec.attribute("mesh");
  SHARDMESH_TRY(const extents sizes, mesh_sizes(item, mesh));
  SHARDMESH_TRY(const auto coordinate, coordinate_in(mesh, sizes));
  SHARDMESH_TRY(std::vector<placement> placements, placements_of(spec, checked_volume(sizes).value_or(1)));
  made.holder = fmt::format("DTensor, {}", to_string(placements));
  made.ranks = checked_volume(sizes).value_or(1);
  if (!coordinate) return made;
  made.holder += fmt::format(", of rank {} in a mesh of {}", to_string(*coordinate), to_string(sizes));
  const auto local = item.tensor_of(subclass_attribute(state, "_local_tensor"));
  if (!local) return fail(errc::unsupported, made.holder + ", whose local tensor is of an unknown representation");
  auto ranks = device_mesh::make(std::span(sizes.begin(), sizes.end()));
  if (!ranks) return as_damage(std::move(ranks).error());
  const std::int32_t rank = ranks->rank_at(*coordinate);
  auto made_layout = layout::make(*std::move(ranks), std::move(placements), made.shape);
  if (!made_layout) return as_damage(std::move(made_layout).error());
  const layout& placed = *made_layout;
  const torch_file::tensor& held = item.tensors()[*local];
  if (held.type != made.type)
    return fail(errc::dtype_mismatch, "its local tensor does not have the dtype that it states")
        .with_values(std::string(name(made.type)), std::string(name(held.type)));
  const extents expected = placed.local_shape(rank);
  const bool both_empty = checked_volume(expected) == 0 && checked_volume(held.sizes) == 0;
  if (expected != held.sizes && !both_empty)
    return fail(errc::shape_mismatch, "its local tensor does not have the shape that its placement gives")
        .with_values(to_string(expected), to_string(held.sizes));
  for (placed_box& piece : placed.boxes(rank))
    made.pieces.push_back({std::move(piece.where), *local, std::move(piece.local_offsets)});
  return made;
}

result<rank_part> sharded_part(const torch_file::item& item, const pickle::value& state, rank_part made) {
  const pickle::items parts = state.items();  // local shards, metadata, process group, specification, init_rrefs
  if (parts.size() < 3) return bad("its ShardedTensor is of an unknown form");
  made.holder = "ShardedTensor";
  made.ranks = parts[2].attribute("global_world_size").as_int().value_or(1);
  if (const auto rank = parts[2].attribute("global_rank").as_int())
    made.holder += fmt::format(" of rank {} of {}", *rank, made.ranks);
  SHARDMESH_TRY(const extents whole, numbers_of(parts[1].attribute("size"), "sizes"));
  if (whole != made.shape)
    return fail(errc::shape_mismatch, "its metadata has another shape")
        .with_values(to_string(made.shape), to_string(whole));
  for (const pickle::value shard : parts[0].items()) {
    const pickle::value metadata = shard.attribute("metadata");
    box where;
    SHARDMESH_TRY(where.offsets, numbers_of(metadata.attribute("shard_offsets"), "shard's offsets"));
    SHARDMESH_TRY(where.sizes, numbers_of(metadata.attribute("shard_sizes"), "shard's sizes"));
    const auto local = item.tensor_of(shard.attribute("tensor"));
    if (!local) return fail(errc::unsupported, made.holder + ", whose shards are of an unknown representation");
    const torch_file::tensor& held = item.tensors()[*local];
    if (held.type != made.type)
      return fail(errc::dtype_mismatch, "a shard has a different dtype than its tensor")
          .with_values(std::string(name(made.type)), std::string(name(held.type)));
    if (held.sizes != where.sizes || where.offsets.rank() != where.sizes.rank())
      return fail(errc::shape_mismatch, "a shard does not have the shape in its metadata")
          .with_values(to_string(where.sizes), to_string(held.sizes));
    bool lies_within = where.rank() == made.shape.rank() && is_well_formed(where);
    for (std::size_t d = 0; lies_within && d < where.rank(); ++d) lies_within = where.end(d) <= made.shape[d];
    if (!lies_within)
      return fail(errc::out_of_bounds, "a shard lies outside of its tensor")
          .with_values(fmt::format("within {}", to_string(made.shape)), to_string(where));
    if (checked_volume(where.sizes) == 0 && checked_volume(made.shape) != 0) continue;  // a rank without a part
    extents origin = extents::filled(where.rank(), 0);
    made.pieces.push_back({std::move(where), *local, std::move(origin)});
  }
  return made;
}

}  // namespace

result<std::optional<rank_part>> rank_part_of(const torch_file::item& item, const pickle::value& value) {
  pickle::value record = value;
  std::optional<bool> requires_grad;
  if (record.is_record_of("torch._utils", "_rebuild_parameter") && record.args().size() >= 2) {
    requires_grad = record.args().items()[1].as_bool();
    record = record.args().items()[0];
  }
  // function, class, the arguments of _make_wrapper_subclass, state
  if (!record.is_record_of("torch._tensor", "_rebuild_from_type_v2") || record.args().size() != 4)
    return std::optional<rank_part>();
  const pickle::value kind = record.args().items()[1], state = record.args().items()[3];
  if (!kind.global_module().starts_with("torch.distributed")) return std::optional<rank_part>();
  const bool is_dtensor = kind.global_name() == "DTensor";
  if (!is_dtensor && kind.global_name() != "ShardedTensor") return std::optional<rank_part>();
  const pickle::items made_of = record.args().items()[2].items();
  rank_part made;
  if (made_of.size() < 3) return bad("it is rebuilt from too few arguments");
  const auto type = parse_dtype(made_of[1].global_name());
  if (made_of[1].global_module() != "torch" || !type)
    return fail(errc::unsupported, fmt::format("{} of an unknown dtype", kind.global_name()));
  made.type = *type;
  SHARDMESH_TRY(made.shape, numbers_of(made_of[2], "sizes"));
  const auto volume = checked_volume(made.shape);
  if (!volume || !size_bytes(made.type, *volume))
    return fail(errc::overflow, "its size does not fit in 64 bits: " + to_string(made.shape));
  made.requires_grad = requires_grad.value_or(made_of.size() > 7 && made_of[7].as_bool().value_or(false));
  SHARDMESH_TRY(made,
                is_dtensor ? dtensor_part(item, state, std::move(made)) : sharded_part(item, state, std::move(made)));
  return std::optional(std::move(made));
}

}  // namespace shardmesh::torch_file
