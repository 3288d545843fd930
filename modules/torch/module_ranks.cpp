// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.torch;

import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import shardmesh.comm;
import shardmesh.layout;
import shardmesh.tree;

namespace shardmesh::detail {
namespace {

// The sizes of every entry on one rank, from its note.
using sizes_of_rank = std::vector<extents>;

result<void> check_mesh(const device_mesh& mesh, communicator_ref comm, bool is_of_all) {
  if (!mesh.coordinate_of(comm.rank()))
    return fail(errc::invalid_argument, "the rank is not in the mesh " + to_string(mesh)).with_rank(comm.rank());
  if (mesh.rank_limit() > comm.size() || (is_of_all && mesh.size() != comm.size()))
    return fail(errc::invalid_argument, "the mesh " + to_string(mesh) + " does not have the communicator's ranks")
        .with_values(std::to_string(comm.size()) + " ranks",
                     std::to_string(mesh.size()) + ", up to rank " + std::to_string(mesh.rank_limit() - 1));
  return {};
}

// The placements of entries of these shapes; only the number of dimensions matters.
result<std::vector<std::vector<placement>>> placements_of(std::span<const keyed_shape> shapes,
                                                          const placing_rules& placing) {
  placement_resolution placed = resolve_placements(shapes, placing.mesh, placing.rules, placing.options);
  if (!placed.ok()) return std::move(placed.errors.front());
  return std::move(placed.placements);
}

// The records that must be equal on every rank that saves.
std::vector<agreement_record> records_of(std::span<const placed_memory<const_tensor_view>> entries,
                                         std::span<const std::vector<placement>> placements, const device_mesh& mesh) {
  std::string numbering = to_string(mesh);
  for (std::int64_t i = 0; i < mesh.size() && !mesh.is_in_order(); ++i)
    numbering += (i == 0 ? " of ranks " : ",") + std::to_string(mesh.rank_of_position(i));
  std::vector<agreement_record> records{{"(mesh)", std::move(numbering)}};
  for (std::size_t i = 0; i < entries.size(); ++i)
    records.push_back({dotted(entries[i].where), std::string(name(entries[i].memory.type)) + " of " +
                                                     std::to_string(entries[i].memory.sizes.size()) +
                                                     " dimensions, placed " + to_string(placements[i])});
  return records;
}

result<sizes_of_rank> sizes_from(std::span<const std::byte> note, std::size_t count, std::int32_t rank) {
  wire_reader in(note);
  sizes_of_rank sizes;
  for (std::size_t i = 0; i < count; ++i) sizes.push_back(in.numbers());
  if (!in.finished()) return fail(errc::bad_format, "a rank's description of its module is malformed").with_rank(rank);
  return sizes;
}

// Adds sizes along the mesh dimensions that cut a dimension; along the others, only coordinate 0 counts.
result<extents> whole_shape(const device_mesh& mesh, std::span<const placement> placements,
                            std::span<const sizes_of_rank> all, std::size_t entry) {
  extents shape = extents::filled(all.front()[entry].size(), 0);
  for (std::int64_t position = 0; position < mesh.size(); ++position) {
    const std::int32_t rank = mesh.rank_of_position(position);
    const extents coordinate = mesh.coordinate_of(rank).value();
    const extents& sizes = all[static_cast<std::size_t>(rank)][entry];
    for (std::size_t d = 0; d < shape.size(); ++d) {
      bool counts = true;
      for (std::size_t m = 0; m < placements.size(); ++m) {
        const bool cuts = placements[m].is_shard() && placements[m].dim == static_cast<std::int32_t>(d);
        counts = counts && (cuts || coordinate[m] == 0);
      }
      if (!counts) continue;
      const auto sum = checked_add(shape[d], sizes[d]);
      if (!sum) return fail(errc::overflow, "the size of the whole tensor overflows 64 bits");
      shape[d] = *sum;
    }
  }
  return shape;
}

// Returns one entry on this rank, if every rank's part agrees with the layout. Every rank finds the same problem, so no
// rank continues to save alone.
result<const_local_state_tensor> held_of(const placed_memory<const_tensor_view>& mine,
                                         std::vector<placement> placements, const device_mesh& mesh,
                                         std::span<const sizes_of_rank> all, std::size_t entry, std::int32_t rank) {
  for (const sizes_of_rank& of_rank : all)
    if (of_rank[entry].size() != mine.memory.sizes.size())
      return fail(errc::bad_format,
                  "a rank sent a number of dimensions that differs from the one that the ranks agreed on");
  SHARDMESH_TRY(extents shape, whole_shape(mesh, placements, all, entry));
  SHARDMESH_TRY(const layout laid, stored_layout(mesh, std::move(placements), shape));
  for (std::size_t other = 0; other < all.size(); ++other) {
    const extents wanted = laid.local_shape(static_cast<std::int32_t>(other));
    if (all[other][entry] != wanted)
      return fail(errc::shape_mismatch,
                  "the module's tensor does not have the shape of this rank's part of " + to_string(laid))
          .with_rank(static_cast<std::int32_t>(other))
          .with_values(to_string(wanted), to_string(all[other][entry]));
    if (bits(mine.memory.type) % 8 != 0 && laid.boxes(static_cast<std::int32_t>(other)).size() > 1)
      return fail(errc::unaligned, "a tensor of " + std::string(name(mine.memory.type)) + " cannot be cut")
          .with_rank(static_cast<std::int32_t>(other));
  }
  SHARDMESH_TRY(auto parts, parts_of(mine.memory, laid, rank));
  return const_local_state_tensor{mine.where, shape, mine.memory.type, std::move(parts), {}};
}

template <tensor_view_type View>
std::vector<keyed_shape> keyed_shapes(std::span<const placed_memory<View>> entries) {
  std::vector<keyed_shape> shapes;
  for (const auto& one : entries) shapes.push_back({dotted(one.where), one.memory.sizes});
  return shapes;
}

// Every rank calls this, with or without a problem: the error of one rank is the error of all.
result<agreement_notes> settle(communicator_ref comm, const std::optional<error>& problem,
                               std::span<const agreement_record> records, std::vector<std::byte> note,
                               const call_options& call) {
  return agree(comm, records,
               {.what = "entries of a module",
                .ordered = true,
                .note = std::move(note),
                .problem = problem ? &*problem : nullptr},
               call);
}

}  // namespace

result<const_local_state> held_to_save(const result<std::vector<placed_memory<const_tensor_view>>>& entries,
                                       const placing_rules& placing, communicator_ref comm, const call_options& call) {
  std::vector<agreement_record> records;
  wire_writer note;
  const auto look = [&]() -> result<std::vector<std::vector<placement>>> {
    if (!entries) return entries.error();
    SHARDMESH_TRY(check_mesh(placing.mesh, comm, true));
    SHARDMESH_TRY(auto placed, placements_of(keyed_shapes(std::span(*entries)), placing));
    records = records_of(*entries, placed, placing.mesh);
    for (const auto& one : *entries) note.numbers(one.memory.sizes);
    return placed;
  };
  auto placements = look();
  const std::optional<error> problem = placements ? std::nullopt : std::optional(placements.error());
  SHARDMESH_TRY(const agreement_notes notes, settle(comm, problem, records, std::move(note).take(), call));
  std::vector<sizes_of_rank> all;
  for (std::size_t rank = 0; rank < notes.size(); ++rank) {
    SHARDMESH_TRY(all.emplace_back(), sizes_from(notes[rank], entries->size(), static_cast<std::int32_t>(rank)));
  }
  const_local_state held;
  for (std::size_t i = 0; i < entries->size(); ++i) {
    const auto& mine = (*entries)[i];
    auto tensor = held_of(mine, std::move((*placements)[i]), placing.mesh, all, i, comm.rank());
    if (!tensor) return std::move(tensor).error().with_key(dotted(mine.where));
    held.tensors.push_back(*std::move(tensor));
  }
  return held;
}

result<local_state> held_to_load(const checkpoint_reader* reader, const result<void>& opened,
                                 const result<std::vector<placed_memory<tensor_view>>>& entries,
                                 const placing_rules& placing, communicator_ref comm, const call_options& call) {
  local_state held;
  const auto look = [&]() -> result<void> {
    SHARDMESH_TRY(opened);
    if (!entries) return entries.error();
    SHARDMESH_TRY(check_mesh(placing.mesh, comm, false));
    std::vector<keyed_shape> shapes = keyed_shapes(std::span(*entries));
    for (keyed_shape& one : shapes)
      if (const tensor_entry* const stored = reader->contents().find(one.key)) one.shape = stored->shape;
    SHARDMESH_TRY(auto placed, placements_of(shapes, placing));
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto& mine = (*entries)[i];
      const auto named = [&](error cause) {
        return std::move(cause).with_file(reader->path().string()).with_key(shapes[i].key);
      };
      if (!reader->contents().find(shapes[i].key)) {  // `load` reports the missing entry
        held.tensors.push_back({mine.where, {}, mine.memory.type, {}, {}});
        continue;
      }
      auto laid = stored_layout(placing.mesh, std::move(placed[i]), shapes[i].shape);
      if (!laid) return named(std::move(laid).error());
      auto parts = parts_of(mine.memory, *laid, comm.rank());
      if (!parts) return named(std::move(parts).error());
      held.tensors.push_back({mine.where, shapes[i].shape, mine.memory.type, *std::move(parts), {}});
    }
    return {};
  };
  const result<void> mine = look();
  const std::optional<error> problem = mine ? std::nullopt : std::optional(mine.error());
  SHARDMESH_TRY(const agreement_notes notes, settle(comm, problem, {}, {}, call));
  return held;
}

}  // namespace shardmesh::detail
