// SPDX-License-Identifier: Apache-2.0
// The parameters of a flat parameter as distributions, and a rank's memory as their slots, so that every plan can start
// or end in flat memory. Plans of state dicts are in planned.
export module shardmesh.fsdp:flat_distribution;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :flat_parameter;
import :shard_group;

export namespace shardmesh {

/// Returns the part of one parameter that one rank holds, as boxes that are contiguous in its flat shard. A parameter
/// of n dimensions has at most 2 * n - 1. `begin` is the element of the flat shard at which a box begins. Precondition:
/// 0 <= position < group_size.
std::vector<flat_box> held_boxes(const flat_parameter& flat, std::size_t parameter, std::int32_t position);

/// Returns the distribution of one parameter over the ranks of the group's communicator. A rank's slots are its
/// `held_boxes` in order, each with its own index space.
/// \errors errc::invalid_argument when the group's size is not the flat parameter's
/// Cost: O(ranks that hold a part * boxes).
result<distribution> distribution_of(const flat_parameter& flat, std::size_t parameter, const shard_group& group);

/// Returns the memory of those slots: n-dimensional views into a rank's flat shard.
/// \param shard  1-D: sharded_numel elements, or fewer where padding is left out, but at least those that the rank
///               holds. The whole flat tensor is not a valid shard
/// \errors errc::shape_mismatch, errc::dtype_mismatch, naming the parameter
result<std::vector<tensor_view>> slots_of(const flat_parameter& flat, std::size_t parameter, std::int32_t position,
                                          const tensor_view& shard);

/// Returns the distribution of the flat tensor itself, without padding at the end: shape [unsharded_numel], one slot
/// per rank.
/// \errors as above
result<distribution> flat_distribution(const flat_parameter& flat, const shard_group& group);

/// Returns the memory of that slot: the shard without padding at its end. Empty where a rank holds nothing.
/// \errors as above
result<std::vector<tensor_view>> flat_slots(const flat_parameter& flat, std::int32_t position,
                                            const tensor_view& shard);

}  // namespace shardmesh
