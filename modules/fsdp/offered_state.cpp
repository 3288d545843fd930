// SPDX-License-Identifier: Apache-2.0
module;
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.fsdp;

import :offered_state;

namespace shardmesh::detail {

extents offered_state::shape_of(const fsdp_entry& entry) const {
  if (entry.kind == fsdp_entry_kind::tensor) return model.tensors[entry.index].value.sizes;
  const fsdp_unit& unit = model.units[entry.unit];
  return entry.kind == fsdp_entry_kind::flat ? flat_shape(unit) : parameter_shape(unit, entry.index);
}

dtype offered_state::type_of(const fsdp_entry& entry) const {
  return entry.kind == fsdp_entry_kind::tensor ? model.tensors[entry.index].value.type
                                               : model.units[entry.unit].parameters.type();
}

result<void> offered_state::widen_columns() {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    offered_value& offer = values[i];
    const fsdp_entry& entry = entries[i];
    if (!offer.where || entry.kind == fsdp_entry_kind::flat || entry.kind == fsdp_entry_kind::tensor) continue;
    const parallel_parameters& parallel = model.units[entry.unit].parallel;
    if (parallel.is_none() || !parallel.column_of(comm.rank()) || offer.shape == shape_of(entry) ||
        offer.shape != parallel.placed(entry.index).local_shape(comm.rank()))
      continue;
    auto whole = within_column(parallel, entry.index, comm.rank(), *offer.where);
    if (!whole) return std::move(whole).error().with_key(entry.key).with_rank(comm.rank());
    offer.where = *std::move(whole);
    offer.shape = shape_of(entry);
  }
  return {};
}

result<void> offered_state::check_values() const {
  std::set<std::size_t> flat_units;  // whose flat parameter is in this rank's state dict
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i].kind == fsdp_entry_kind::flat && values[i].is_offered) flat_units.insert(entries[i].unit);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const offered_value& offer = values[i];
    const fsdp_entry& entry = entries[i];
    // A local state dict of PyTorch with use_orig_params has flat pieces under the names of parameters.
    const bool is_superseded =
        entry.kind != fsdp_entry_kind::flat && entry.kind != fsdp_entry_kind::tensor && flat_units.contains(entry.unit);
    if (!offer.is_offered || is_superseded) continue;
    for (const const_tensor_view& view : offer.memory.slots)
      if (auto held = check_reachable(view); !held)
        return std::move(held).error().with_key(entry.key).with_rank(comm.rank());
    if (offer.shape == shape_of(entry)) continue;
    error e = fail(errc::shape_mismatch, "the state dict has a different shape than the model")
                  .with_key(entry.key)
                  .with_rank(comm.rank())
                  .with_values(to_string(shape_of(entry)), to_string(offer.shape));
    if (entry.kind == fsdp_entry_kind::flat && model.units[entry.unit].parameters.alignment() > 0)
      e = std::move(e).with_hint("an aligned flat parameter's padding depends on the number of ranks; save by name");
    return e;
  }
  return {};
}

result<void> offered_state::check_targets() const {
  const auto check = [&](const tensor_view& view, const std::string& key) -> result<void> {
    if (auto held = check_reachable(view); !held) return std::move(held).error().with_key(key).with_rank(comm.rank());
    return {};
  };
  for (const fsdp_entry& entry : entries)
    SHARDMESH_TRY(
        check(entry.kind == fsdp_entry_kind::tensor ? model.tensors[entry.index].value : model.units[entry.unit].shard,
              entry.key));
  return {};
}

}  // namespace shardmesh::detail
