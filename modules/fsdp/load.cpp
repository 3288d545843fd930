// SPDX-License-Identifier: Apache-2.0
module;
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

import :load_choice;
import :located_shards;
import :offered_state;
import :rank_note;

namespace shardmesh {

std::vector<std::string> load_state_report::keys(load_status status) const {
  std::vector<std::string> found;
  for (const load_entry& entry : entries)
    if (entry.status == status) found.push_back(entry.key);
  return found;
}

namespace detail {
namespace {

// The destination of an entry's elements: its distribution, and this rank's memory.
struct load_target {
  distribution to;
  tensor_binding memory;
};

result<distribution> whole_on(const extents& shape, std::span<const std::int32_t> ranks, std::int32_t size) {
  distribution_builder builder(shape, owner_space::ranks);
  builder.at_least_owners(size);
  const extents origin = extents::filled(shape.rank(), 0);
  for (const std::int32_t r : ranks) builder.add(r, 0, origin, shape);
  return builder.finish();
}

result<load_target> target_of(const offered_state& mine, const fsdp_entry& entry) {
  load_target made;
  if (entry.kind == fsdp_entry_kind::tensor) {
    std::vector<std::int32_t> everyone;
    for (std::int32_t r = 0; r < mine.comm.size(); ++r) everyone.push_back(r);
    const tensor_view& value = mine.model.tensors[entry.index].value;
    SHARDMESH_TRY(made.to, whole_on(value.sizes, everyone, mine.comm.size()));
    made.memory.slots = {value};
    return made;
  }
  const fsdp_unit& unit = mine.model.units[entry.unit];
  const bool is_flat = entry.kind == fsdp_entry_kind::flat;
  SHARDMESH_TRY(made.to, is_flat ? flat_distribution(unit) : distribution_of(unit, entry.index));
  const auto position = unit.group.position(mine.comm.rank());
  if (!position) return made;
  SHARDMESH_TRY(made.memory.slots, is_flat ? flat_slots(unit.parameters, *position, unit.shard)
                                           : slots_of(unit.parameters, entry.index, *position, unit.shard));
  return made;
}

// Collective. Moves the elements of the entries that are read.
result<fsdp_profile> move_entries(offered_state& mine, std::span<const std::size_t> sources,
                                  std::span<const rank_note> notes, const located_shards& shards) {
  fsdp_profile profile;
  bound_transfers work;
  for (const std::size_t i : sources) {
    const fsdp_entry& entry = mine.entries[i];
    if (box::whole(mine.shape_of(entry)).is_empty()) continue;
    SHARDMESH_TRY(load_target target, target_of(mine, entry));
    tensor_transfer transfer{{}, std::move(target.to), dtype::undefined, mine.type_of(entry)};
    std::vector<std::int32_t> holders;
    for (std::size_t r = 0; r < notes.size(); ++r) {
      if (notes[r].kinds[i] == offer_kind::none) continue;
      holders.push_back(static_cast<std::int32_t>(r));
      if (notes[r].types[i] != dtype::undefined) transfer.from_type = notes[r].types[i];
    }
    if (const auto located = shards.find(i); located != shards.end()) {
      transfer.from = located->second;
    } else {
      SHARDMESH_TRY(transfer.from, whole_on(mine.shape_of(entry), holders, mine.comm.size()));
    }
    work.transfers.push_back(std::move(transfer));
    work.keys.push_back(entry.key);
    work.from.push_back(std::move(mine.values[i].memory));
    work.to.push_back(std::move(target.memory));
  }
  if (work.transfers.empty()) return profile;
  SHARDMESH_TRY(
      run_transfers({}, std::move(work), mine.comm,
                    {.memory_bytes = mine.options.memory_bytes, .allow_narrowing = mine.options.allow_narrowing},
                    mine.options.call, profile));
  return profile;
}

result<load_state_report> load(offered_state& mine, std::vector<std::string> unexpected,
                               const std::optional<error>& problem) {
  std::set<std::string_view> known;
  for (const fsdp_entry& entry : mine.entries) known.insert(entry.key);
  std::erase_if(unexpected, [&](const std::string& key) { return known.contains(key); });
  SHARDMESH_TRY(const auto notes, exchange_notes(mine, unexpected, problem));
  load_choice choice = choose_entries(mine.entries, notes);
  SHARDMESH_TRY(check_agreement(mine.entries, choice.sources, notes));
  load_state_report report{std::move(choice.entries), {}};
  if (mine.options.mode == load_mode::strict) SHARDMESH_TRY(check_complete(report));
  SHARDMESH_TRY(const located_shards shards, locate_shards(mine, choice.sources, notes));
  SHARDMESH_TRY(report.profile, move_entries(mine, choice.sources, notes, shards));
  if (mine.options.mode == load_mode::ignore)
    std::erase_if(report.entries, [](const load_entry& e) { return e.status >= load_status::missing; });
  report.profile.entries = static_cast<std::int64_t>(report.entries.size());
  return report;
}

}  // namespace

result<load_state_report> load_offers(const fsdp_model& model, communicator_ref comm,
                                      result<std::vector<offered_value>> offers, std::vector<std::string> unexpected,
                                      const load_state_options& given) {
  load_state_options options = given;
  options.call = given.call.named("load_state_dict");
  auto entries = entries_of(model, fsdp_entries::all);
  std::optional<error> problem;
  if (!entries)
    problem = entries.error();
  else if (!offers)
    problem = offers.error();
  std::vector<fsdp_entry> known = entries ? *std::move(entries) : std::vector<fsdp_entry>{};
  std::vector<offered_value> held = offers ? *std::move(offers) : std::vector<offered_value>(known.size());
  offered_state mine{model, comm, std::move(known), std::move(held), std::move(options)};
  if (!problem)
    if (auto widened = mine.widen_columns(); !widened) problem = widened.error();
  if (!problem)
    if (auto valid = mine.check_values(); !valid) problem = valid.error();
  if (!problem)
    if (auto valid = mine.check_targets(); !valid) problem = valid.error();
  if (!problem)
    for (std::size_t u = 0; u < model.units.size() && !problem; ++u)
      if (auto valid = check_unit_of(model.units[u], comm); !valid) problem = valid.error();
  return load(mine, std::move(unexpected), problem);
}

}  // namespace detail
}  // namespace shardmesh
