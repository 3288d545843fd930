// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

namespace shardmesh {
namespace {

// The boxes of a parameter that lie in this rank's flat shard. A part that no other column holds is cut along its
// pieces in memory. Columns that hold the same elements but cut them at different places share all cuts, because
// overlapping boxes must be equal.
result<std::vector<local_part>> parts_of(const fsdp_unit& unit, std::size_t parameter, std::int32_t rank) {
  std::vector<local_part> parts;
  const auto position = unit.group.position(rank);
  if (!position) return parts;
  SHARDMESH_TRY(const std::vector<tensor_view> slots, slots_of(unit.parameters, parameter, *position, unit.shard));
  if (unit.parallel.is_none()) {
    const auto boxes = held_boxes(unit.parameters, parameter, *position);
    for (std::size_t i = 0; i < boxes.size(); ++i) parts.push_back({boxes[i].where, slots[i]});
    return parts;
  }
  SHARDMESH_TRY(const distribution holders, distribution_of(unit.parallel, parameter));
  holders.fragments_of(rank, [&](const fragment& f) {
    const auto slot = static_cast<std::size_t>(f.slot);
    parts.push_back({f.where, subview(slots[slot], {f.local_offsets, f.where.sizes})});
    return true;
  });
  return parts;
}

}  // namespace

result<const_local_state> local_model_view::to_save() {
  const_local_state made = names_;
  for (converted_tensor& one : converted_) {
    const_local_state_tensor& tensor = made.tensors[one.name];
    const auto convert = [&]() -> result<void> {
      const const_tensor_view from = tensor.parts.front().memory;
      SHARDMESH_TRY(one.memory, host_tensor::make(one.type, from.sizes));
      return copy_between(view_of(one.memory), from);
    };
    if (auto done = convert(); !done) return std::move(done).error().with_key(dotted(tensor.where));
    tensor.type = one.type;
    tensor.parts.front().memory = view_of(one.memory);
  }
  return made;
}

local_state local_model_view::to_load(const std::function<bool(std::string_view key)>& has) const {
  const auto knows = [&](std::size_t name) { return !has || has(dotted(names_.tensors[name].where)); };
  // For each own name, the name to request.
  std::map<std::size_t, std::size_t> asked;
  for (std::size_t i = 0; i < same_as_.size(); ++i)
    if (same_as_[i] == i && knows(i)) asked.emplace(i, i);
  for (std::size_t i = 0; i < same_as_.size(); ++i)
    if (same_as_[i] != i && has && !asked.contains(same_as_[i]) && knows(i)) asked.emplace(same_as_[i], i);
  local_state made;
  for (std::size_t i = 0; i < same_as_.size(); ++i) {
    const auto found = asked.find(same_as_[i]);
    if ((found == asked.end() ? same_as_[i] : found->second) == i) made.tensors.push_back(names_.tensors[i]);
  }
  return made;
}

result<local_model_view> local_view(const fsdp_model& model, std::int32_t rank, const local_view_options& options) {
  SHARDMESH_TRY(detail::ranks_of(model, rank));
  SHARDMESH_TRY(const std::vector<fsdp_entry> entries, entries_of(model));
  local_model_view made;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> own;  // index of the own name, by unit and parameter
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].kind == fsdp_entry_kind::parameter) own.emplace(std::pair(entries[i].unit, entries[i].index), i);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const fsdp_entry& entry = entries[i];
    local_state_tensor held;
    held.where = options.under;
    held.where.push_back(entry.key);
    made.same_as_.push_back(i);
    if (entry.kind == fsdp_entry_kind::tensor) {
      const fsdp_tensor& tensor = model.tensors[entry.index];
      held.shape = tensor.value.sizes;
      held.type = tensor.value.type;
      held.parts.push_back({box::whole(held.shape), tensor.value});
      if (!tensor.ignored && tensor.saved_type.value_or(held.type) != held.type)
        made.converted_.push_back({i, *tensor.saved_type, {}});
    } else {
      const fsdp_unit& unit = model.units[entry.unit];
      made.same_as_.back() = own.at({entry.unit, entry.index});
      held.shape = parameter_shape(unit, entry.index);
      held.type = unit.parameters.type();
      auto parts = parts_of(unit, entry.index, rank);
      if (!parts) {
        error problem = std::move(parts).error();
        problem.key = entry.key;
        return std::move(problem).with_rank(rank);
      }
      held.parts = *std::move(parts);
    }
    made.names_.tensors.push_back(std::move(held));
  }
  return made;
}

}  // namespace shardmesh
