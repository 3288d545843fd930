// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

import :shard_chunks;

namespace shardmesh {
namespace {

error at(error e, const std::string& key) {
  return e.key.empty() ? std::move(e).with_key(key) : std::move(e);
}

// Describes an entry's key, shape, type, and memory; plans nothing yet.
result<planned_entry> described(const fsdp_model& model, const fsdp_entry& entry, std::int32_t rank) {
  planned_entry made;
  made.key = entry.key;
  if (entry.kind == fsdp_entry_kind::tensor) {
    const tensor_view& value = model.tensors[entry.index].value;
    made.shape = value.sizes;
    made.type =
        model.tensors[entry.index].ignored ? value.type : model.tensors[entry.index].saved_type.value_or(value.type);
    made.where = value.where;
    made.source.slots = {value};
    return made;
  }
  const fsdp_unit& unit = model.units[entry.unit];
  made.type = unit.parameters.type();
  made.where = unit.shard.where;
  const auto position = unit.group.position(rank);
  if (entry.kind == fsdp_entry_kind::flat) {
    made.shape = flat_shape(unit);
    if (position) {
      auto slots = flat_slots(unit.parameters, *position, unit.shard);
      if (!slots) return std::move(slots).error().with_key(entry.key).with_rank(rank);
      made.source.slots.assign(slots->begin(), slots->end());
    }
    return made;
  }
  made.shape = parameter_shape(unit, entry.index);
  if (position) {
    auto slots = slots_of(unit.parameters, entry.index, *position, unit.shard);
    if (!slots) return std::move(slots).error().with_key(entry.key).with_rank(rank);
    made.source.slots.assign(slots->begin(), slots->end());
  }
  return made;
}

// Makes the whole tensor this rank's part.
void take_whole(planned_entry& entry) {
  entry.form = entry_form::tensor;
  entry.local = entry.shape;
  entry.has_part = true;
}

bool is_whole(const fsdp_model& model, const fsdp_entry& entry) {
  return entry.kind == fsdp_entry_kind::tensor || holds_whole(model.units[entry.unit]);
}

bool is_member(const fsdp_model& model, const fsdp_entry& entry, std::int32_t rank) {
  return entry.kind == fsdp_entry_kind::tensor || model.units[entry.unit].group.position(rank).has_value();
}

result<void> set_transfer(planned_entry& entry, const fsdp_unit& unit, std::size_t parameter, distribution to) {
  if (box::whole(entry.shape).is_empty()) return {};  // nothing moves, because no rank holds anything
  SHARDMESH_TRY(distribution from, distribution_of(unit, parameter));
  entry.transfer = tensor_transfer{std::move(from), std::move(to), entry.type, entry.type};
  return {};
}

result<void> plan_chunks(planned_entry& entry, const fsdp_unit& unit, std::size_t parameter, std::int32_t rank,
                         const sharded_state_options& options) {
  SHARDMESH_TRY(const auto chunks, detail::chunks_of(unit, parameter, {options.dim, options.rule}));
  const shard_group& cells = cells_of(unit);
  distribution_builder to(entry.shape, owner_space::ranks);
  to.at_least_owners(cells.ranks());
  for (const detail::group_chunk& chunk : chunks)
    for (const std::int32_t holder : cells.holders(chunk.position))
      if (!chunk.where.is_empty()) to.add(holder, 0, chunk.where.offsets, chunk.where.sizes);
  SHARDMESH_TRY(distribution wanted, to.finish());
  SHARDMESH_TRY(set_transfer(entry, unit, parameter, std::move(wanted)));
  if (!cells.position(rank)) return {};
  return detail::describe_shards(entry, cells, chunks, rank, options.ranks, options.devices_per_node);
}

// The layout of a parameter in the result: the requested one, or on tensor parallelism's mesh the layout of FSDP's
// shards.
result<layout> wanted_layout(const extents& shape, const fsdp_unit& unit, std::size_t parameter,
                             const sharded_state_options& options) {
  const bool is_own_mesh =
      !unit.parallel.is_none() && (options.mesh == device_mesh() || options.mesh == unit.parallel.mesh());
  if (is_own_mesh && options.placements.empty()) return unit.parallel.sharded(parameter, options.dim);
  const device_mesh& mesh = is_own_mesh ? unit.parallel.mesh() : options.mesh;
  std::vector<placement> placements = options.placements;
  if (placements.empty() && mesh.rank() > 0) {
    placements.assign(mesh.rank(), placement::replicate());
    if (shape.rank() > 0) placements.back() = placement::shard(options.dim);
  }
  if (mesh.rank_limit() > unit.group.ranks())
    return fail(errc::out_of_bounds, "the mesh has ranks beyond the communicator")
        .with_rank(mesh.rank_limit() - 1)
        .with_values(fmt::format("ranks below {}", unit.group.ranks()), std::to_string(mesh.rank_limit() - 1));
  const std::vector<split_rule> rules(mesh.rank(), options.rule);
  return layout::make(mesh, std::move(placements), shape, rules);
}

result<void> plan_placed(planned_entry& entry, const fsdp_unit& unit, std::size_t parameter, std::int32_t rank,
                         const sharded_state_options& options) {
  SHARDMESH_TRY(layout placed, wanted_layout(entry.shape, unit, parameter, options));
  if (placed.reduction() != reduce_op::none)
    return fail(errc::mixed_partial, "a parameter cannot be saved as Partial terms")
        .with_values("shards and replicas", "Partial");
  SHARDMESH_TRY(distribution wanted, distribute(placed));
  SHARDMESH_TRY(set_transfer(entry, unit, parameter, std::move(wanted)));
  if (placed.mesh().coordinate_of(rank)) {
    entry.form = entry_form::dtensor;
    entry.local = placed.local_shape(rank);
    entry.has_part = true;
  }
  entry.placed = std::move(placed);
  return {};
}

// Moves an entry with several names once, under the first.
class named_once {
 public:
  void add(const fsdp_entry& entry, planned_entry& made, std::size_t at) {
    if (!made.transfer) return;
    const auto [first, is_new] = first_.try_emplace({entry.unit, entry.index}, at);
    if (is_new) return;
    made.same_as = first->second;
    made.transfer.reset();
  }

 private:
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> first_;  // by unit and parameter
};

}  // namespace

result<std::vector<planned_entry>> plan_full(const fsdp_model& model, std::int32_t rank,
                                             const full_state_options& options) {
  SHARDMESH_TRY(const std::int32_t ranks, detail::ranks_of(model, rank));
  if (options.rank < 0 || options.rank >= ranks)
    return fail(errc::out_of_bounds, "the rank that gets the state dict is not in the communicator")
        .with_values(fmt::format("0 to {}", ranks - 1), std::to_string(options.rank));
  SHARDMESH_TRY(const auto entries, entries_of(model));
  std::vector<planned_entry> planned;
  named_once names;
  const bool receives = !options.rank0_only || rank == options.rank;
  for (const fsdp_entry& entry : entries) {
    SHARDMESH_TRY(planned_entry made, described(model, entry, rank));
    if (options.offload_to_cpu) made.where = {};
    if (is_whole(model, entry)) {
      const bool is_kept = entry.kind != fsdp_entry_kind::tensor || receives || model.tensors[entry.index].ignored;
      if (is_kept && is_member(model, entry, rank)) take_whole(made);
    } else {
      distribution_builder to(made.shape, owner_space::ranks);
      to.at_least_owners(ranks);
      const extents origin = extents::filled(made.shape.rank(), 0);
      for (std::int32_t r = options.rank0_only ? options.rank : 0; r < (options.rank0_only ? options.rank + 1 : ranks);
           ++r)
        to.add(r, 0, origin, made.shape);
      SHARDMESH_TRY(distribution wanted, to.finish());
      SHARDMESH_TRY(set_transfer(made, model.units[entry.unit], entry.index, std::move(wanted)));
      if (receives) take_whole(made);
      names.add(entry, made, planned.size());
    }
    planned.push_back(std::move(made));
  }
  return planned;
}

result<std::vector<planned_entry>> plan_sharded(const fsdp_model& model, std::int32_t rank,
                                                const sharded_state_options& options) {
  SHARDMESH_TRY(detail::ranks_of(model, rank));
  SHARDMESH_TRY(const auto entries, entries_of(model));
  std::vector<planned_entry> planned;
  named_once names;
  for (const fsdp_entry& entry : entries) {
    SHARDMESH_TRY(planned_entry made, described(model, entry, rank));
    if (options.offload_to_cpu) made.where = {};
    if (is_whole(model, entry)) {
      if (is_member(model, entry, rank)) take_whole(made);
    } else {
      const fsdp_unit& unit = model.units[entry.unit];
      auto done = options.form == sharded_form::dtensor ? plan_placed(made, unit, entry.index, rank, options)
                                                        : plan_chunks(made, unit, entry.index, rank, options);
      if (!done) return at(std::move(done).error(), entry.key);
      names.add(entry, made, planned.size());
    }
    planned.push_back(std::move(made));
  }
  return planned;
}

result<std::vector<planned_entry>> plan_local(const fsdp_model& model, std::int32_t rank,
                                              const local_state_options& options) {
  SHARDMESH_TRY(detail::ranks_of(model, rank));
  SHARDMESH_TRY(const auto entries, entries_of(model, fsdp_entries::flat));
  std::vector<planned_entry> planned;
  for (const fsdp_entry& entry : entries) {
    SHARDMESH_TRY(planned_entry made, described(model, entry, rank));
    if (options.offload_to_cpu) made.where = {};
    if (entry.kind != fsdp_entry_kind::flat) {
      if (is_member(model, entry, rank)) take_whole(made);
    } else if (is_member(model, entry, rank)) {
      const fsdp_unit& unit = model.units[entry.unit];
      std::vector<detail::group_chunk> held;
      for (const box& b : flat_boxes(unit)) held.push_back({static_cast<std::int32_t>(held.size()), b});
      SHARDMESH_TRY(detail::describe_shards(made, cells_of(unit), held, rank, options.ranks, options.devices_per_node));
    }
    planned.push_back(std::move(made));
  }
  return planned;
}

result<transfer_plan> plan_of(std::span<const planned_entry> entries, const plan_options& options) {
  std::vector<tensor_transfer> transfers;
  for (const planned_entry& entry : entries)
    if (entry.transfer) transfers.push_back(*entry.transfer);
  return plan(std::move(transfers), options);
}

}  // namespace shardmesh
