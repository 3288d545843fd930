// SPDX-License-Identifier: Apache-2.0
// fsdp_unit: the parameters of one module in flat memory, as one rank holds them, and their distributions. Several
// units and the names of their entries are in model.
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
/// is laid out like the parameters (Adam's exp_avg) is also a unit, with a `key_suffix`.
struct fsdp_unit {
  std::string prefix;  // name of the module, "" for the root; components that wrappers insert are ignored
  flat_parameter parameters;
  shard_group group;         // over the ranks of the communicator
  tensor_view shard;         // 1-D, sharded_numel elements; no memory on ranks that are not members
  std::string key_suffix{};  // appended to every key: ".exp_avg"
  // For a unit that tensor parallelism also cuts. `parallel_unit` sets it, and derives from it `parameters` (those of
  // this rank's column) and `group`.
  parallel_parameters parallel{};
};

/// Makes the unit of parameters that tensor parallelism has cut, as `rank` holds it.
/// \param shard  of the flat parameter of this rank's column: 1-D, sharded_numel elements; no memory outside the mesh
fsdp_unit parallel_unit(std::string prefix, parallel_parameters parallel, std::int32_t rank, const tensor_view& shard,
                        std::string key_suffix = {});

/// The sizes of a whole parameter.
extents parameter_shape(const fsdp_unit& unit, std::size_t parameter);
/// The sizes of the flat tensor, without padding at its end: 1-D. The flat tensors of a parallel unit's columns follow
/// one another.
extents flat_shape(const fsdp_unit& unit);
/// Returns whether every member of the group holds every parameter whole.
bool holds_whole(const fsdp_unit& unit);
/// Returns the ranks grouped by the part that they hold: ranks at one position are replicas. This is the unit's group,
/// unless the unit is parallel.
const shard_group& cells_of(const fsdp_unit& unit);

/// Returns the distribution of a whole parameter; a rank's slots are `slots_of(unit.parameters, ..)`.
/// \errors as for the distribution of a flat parameter, or of `parallel_parameters`
result<distribution> distribution_of(const fsdp_unit& unit, std::size_t parameter);
/// Returns the distribution of `flat_shape`; a rank's slots are `flat_slots(unit.parameters, ..)`.
result<distribution> flat_distribution(const fsdp_unit& unit);
/// The box of `flat_shape` that each cell holds, by position in `cells_of`.
std::vector<box> flat_boxes(const fsdp_unit& unit);

}  // namespace shardmesh
