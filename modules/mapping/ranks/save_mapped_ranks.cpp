// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>
module shardmesh.mapping;

import shardmesh.collective_checkpoint;
import shardmesh.comm;
import shardmesh.layout;
import shardmesh.torch_file;
import shardmesh.transfer;
import shardmesh.tree;
import :element_pieces;
import :mapped_moves;
import :mapped_objects;
import :mapped_run;
import :ranks_state;

namespace shardmesh {
namespace {

// This rank's memory of the state's tensors.
std::vector<const_tensor_binding> memory_of(const const_local_state& held, std::span<const held_tensor> tensors) {
  std::unordered_map<std::string, const const_local_state_tensor*> own;
  for (const const_local_state_tensor& tensor : held.tensors) own.emplace(dotted(tensor.where), &tensor);
  std::vector<const_tensor_binding> made(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const auto found = own.find(tensors[i].key); found != own.end())
      for (const const_local_part& part : found->second->parts) made[i].slots.push_back(part.memory);
  return made;
}

// Renames the parameters in a list, by each mapping through which it passes.
result<local_state_object> list_with_new_names(const local_state_object& object, const traced_object& traced) {
  SHARDMESH_TRY(const std::vector<std::byte> archive, torch_file::archive_of_object(object));
  const memory_source source(archive, traced.key);
  read_budget budget;
  SHARDMESH_TRY(const torch_file::item item, torch_file::item::open(source, {.budget = &budget}));
  SHARDMESH_TRY(const object_value value, torch_file::describe_object(item, item.root(), source, budget));
  std::string names = value.json;
  for (const traced_list& one : traced.lists) {
    const list_mapping& through = *one.through;
    SHARDMESH_TRY(names, with_new_names(names, traced.key, through.bound, one.list, through.instances));
  }
  if (names == value.json) return object;
  SHARDMESH_TRY(const std::vector<std::byte> renamed, torch_file::archive_from_json(names));
  SHARDMESH_TRY(local_state_object made, torch_file::object_of_archive(renamed));
  made.where = object.where;
  return made;
}

// The objects of this rank under the last convention. `keys` are those of all ranks' objects.
result<std::vector<local_state_object>> renamed_objects(const const_local_state& held,
                                                        std::span<const std::string> keys,
                                                        std::span<const traced_object> objects) {
  std::unordered_map<std::string, const local_state_object*> own;
  for (const local_state_object& object : held.objects) own.emplace(dotted(object.where), &object);
  std::vector<local_state_object> made;
  for (const traced_object& one : objects) {
    const local_state_object* first = nullptr;
    for (const std::size_t source : one.sources) {
      const auto found = own.find(keys[source]);
      if (found == own.end()) continue;
      if (first == nullptr) first = found->second;
      if (first->form == found->second->form && first->leaves == found->second->leaves) continue;
      return fail(errc::disagreement,
                  fmt::format("the objects '{}' and '{}', which the mapping joins, have different values",
                              dotted(first->where), keys[source]))
          .with_key(one.key)
          .with_hint("make the values equal, or leave the objects out");
    }
    if (first == nullptr) continue;
    local_state_object object = *first;
    if (!one.lists.empty()) {
      auto renamed = list_with_new_names(*first, one);
      if (!renamed) return std::move(renamed).error().with_key(one.key);
      object = *std::move(renamed);
    }
    if (dotted(object.where) != one.key) object.where = path{one.key};
    made.push_back(std::move(object));
  }
  return made;
}

// The new tensors of this rank, and what fills them.
struct new_state {
  mapped_sides sides;
  std::vector<host_tensor> memory;        // per target
  std::vector<std::optional<box>> parts;  // per target; nothing for a target of other ranks
  std::vector<local_state_object> objects;
  std::vector<std::string> notes;
};

// Allocates this rank's parts of the targets.
result<void> allocate(new_state& made, std::int32_t rank) {
  for (const held_tensor& target : made.sides.to) {
    std::optional<box> part;
    target.where.fragments_of(rank, [&](const fragment& f) {
      if (!f.where.is_empty()) part = f.where;
      return false;  // a rank has one part at most
    });
    host_tensor memory;
    tensor_binding bound;
    if (part) {
      SHARDMESH_TRY(memory, host_tensor::make(target.type, part->sizes));
      bound.slots.push_back(view_of(memory));
    }
    made.parts.push_back(part);
    made.memory.push_back(std::move(memory));
    made.sides.to_memory.push_back(std::move(bound));
  }
  return {};
}

result<mapped_moves> prepare(new_state& made, const const_local_state& held, const ranks_state& all,
                             std::span<const mapping_rules> mappings, const model_sizes& sizes, communicator_ref comm) {
  SHARDMESH_TRY(catalog sources, catalog_of(all.tensors));
  for (const std::string& key : all.objects) sources.objects.push_back({key, {key}, {}, 0});
  SHARDMESH_TRY(const traced_mapping through, traced(sources, mappings, sizes));
  made.notes = through.notes;
  SHARDMESH_TRY(made.objects, renamed_objects(held, all.objects, through.objects));
  SHARDMESH_TRY(made.sides.to, spread_evenly(through.tensors, comm.size()));
  SHARDMESH_TRY(allocate(made, comm.rank()));
  SHARDMESH_TRY(mapped_moves moves, moves_between(made.sides.from, made.sides.to, through.tensors, {}, false));
  // One of two tied tensors is not written, so the two are compared.
  SHARDMESH_TRY(add_ties(moves, made.sides.from, through));
  return moves;
}

// This rank's part of the new state. Rank 0 also lists the tensors without elements.
const_local_state state_of(new_state& made, std::int32_t rank) {
  const_local_state state;
  for (std::size_t i = 0; i < made.sides.to.size(); ++i) {
    const held_tensor& target = made.sides.to[i];
    const_local_state_tensor one{path{target.key}, target.where.global_shape(), target.type, {}, {}};
    if (made.parts[i]) one.parts.push_back({*made.parts[i], view_of(std::as_const(made.memory[i]))});
    const bool is_listed = !one.parts.empty() || (rank == 0 && box::whole(one.shape).is_empty());
    if (is_listed) state.tensors.push_back(std::move(one));
  }
  state.objects = std::move(made.objects);
  return state;
}

}  // namespace

result<save_report> save_mapped(const std::filesystem::path& destination, const const_local_state& held,
                                std::span<const mapping_rules> mappings, const model_sizes& sizes,
                                communicator_ref comm, const rank_save_options& options) {
  const call_options call = call_options{.within = options.within, .cancel = options.cancel}.named("save_mapped");
  SHARDMESH_TRY(ranks_state all, gather_states(held, options.skip_objects, comm, call));
  new_state made;
  made.sides.from_memory = memory_of(held, all.tensors);
  made.sides.from = all.tensors;
  const result<mapped_moves> moves = prepare(made, held, all, mappings, sizes, comm);
  // With `every_run`, a defect of one rank's memory leaves the communicator usable.
  SHARDMESH_TRY(run_moves(moves, made.sides, comm, {.check = check_policy::every_run, .call = call}));
  SHARDMESH_TRY(save_report report, save(destination, state_of(made, comm.rank()), comm, options));
  report.notes.insert(report.notes.begin(), made.notes.begin(), made.notes.end());
  return report;
}

}  // namespace shardmesh
