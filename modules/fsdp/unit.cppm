// SPDX-License-Identifier: Apache-2.0
// fsdp_unit: the parameters of one module in flat memory, as one rank holds them, and what follows for who holds what.
// Not here: several units and the names of their entries (model).
export module shardmesh.fsdp:unit;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :flat_distribution;
import :flat_parameter;
import :parallel_parameters;
import :shard_group;

export namespace shardmesh {

/// One FSDP unit: the parameters of a module in one flat parameter, and this rank's shard of it. Optimizer state that
/// is laid out like the parameters (Adam's exp_avg) is a unit too, with a `key_suffix`.
struct fsdp_unit {
  std::string prefix;  // the module's name, "" for the root; names of wrappers in it do not count
  flat_parameter parameters;
  shard_group group;         // over the ranks of the communicator
  tensor_view shard;         // 1-D, sharded_numel elements; no memory on ranks that are not members
  std::string key_suffix{};  // appended to every key: ".exp_avg"
  // Of a unit that tensor parallelism cuts too: `parallel_unit` sets it and what follows from it, `parameters` (those
  // of this rank's column) and `group`.
  parallel_parameters parallel{};
};

/// A unit of parameters that tensor parallelism has cut, as `rank` holds it.
/// \param shard  of the flat parameter of this rank's column: 1-D, sharded_numel elements; no memory outside the mesh
fsdp_unit parallel_unit(std::string prefix, parallel_parameters parallel, std::int32_t rank, const tensor_view& shard,
                        std::string key_suffix = {});

/// Sizes of a whole parameter.
extents parameter_shape(const fsdp_unit& unit, std::size_t parameter);
/// Sizes of the flat tensor, without padding at its end: 1-D; those of all columns one after the other.
extents flat_shape(const fsdp_unit& unit);
/// Whether every member of the group holds every parameter whole.
bool holds_whole(const fsdp_unit& unit);
/// The ranks by which part they hold: those with one position are replicas. The unit's group, unless it is parallel.
const shard_group& cells_of(const fsdp_unit& unit);

/// Who holds what of a whole parameter; a rank's slots are `slots_of(unit.parameters, ..)`. \errors as for the flat
/// parameter, `parallel_parameters`
result<distribution> distribution_of(const fsdp_unit& unit, std::size_t parameter);
/// Who holds what of `flat_shape`; a rank's slots are `flat_slots(unit.parameters, ..)`.
result<distribution> flat_distribution(const fsdp_unit& unit);
/// What each cell holds of `flat_shape`, by position in `cells_of`.
std::vector<box> flat_boxes(const fsdp_unit& unit);

}  // namespace shardmesh
