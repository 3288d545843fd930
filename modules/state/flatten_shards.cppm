// SPDX-License-Identifier: Apache-2.0
// flatten_nested_shards of one sharded tensor of any type, and the options of flattening. State dicts are in
// flatten_nested; the boxes and owners are in nest.
module;
#include <shardmesh/shard_adapter.hpp>
export module shardmesh.state:flatten_shards;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :nest;

export namespace shardmesh {

/// The two ways of `flatten_nested_shards`: exact, or as PyTorch does.
enum class nested_policy : std::uint8_t {
  /// Any depth, and any number of inner shards (or none). Every key stays, and owners are the true ones.
  exact,
  /// PyTorch's result, which its checkpoints contain. It flattens one level. Other ranks' shards appear on rank 0 (on
  /// rank 1 if this is rank 0). Keys without local shards disappear, keys are names, and containers are as PyTorch's
  /// traversal leaves them. Only the local shard and the coverage are right. PyTorch removes the wrong shard if an
  /// empty one starts at the same place; this library does not. PyTorch loses one of two keys with the same name; here
  /// that is an error.
  torch_compatible
};

/// Returns the metadata inside a shard that another rank holds; nothing if it is unknown. `shard` is in the coordinates
/// of the whole tensor. The result is in the coordinates of the shard, without further nesting.
using inner_metadata_function =
    std::function<std::optional<sharded_tensor_metadata>(const path& where, const shard_metadata& shard)>;

/// The options of `flatten_nested_shards`, for one sharded tensor or a state dict. By default it flattens exactly.
/// Another rank's shard stays one box unless the ranks exchange their inner metadata, or `inner_metadata` returns it.
struct nested_options {
  nested_policy policy = nested_policy::exact;
  inner_metadata_function inner_metadata{};  // for exact: other ranks' shards
  /// The group of the flat tensors. By default, it is the outer tensor's group if the inner tensors have the same group
  /// and it contains every holder; else it is all ranks that occur. In the collective form, the default is its `group`.
  std::optional<rank_group> group{};
  call_options call{};  // of the collective form
};

/// The outcome of `flatten_nested_shards` for a sharded tensor.
enum class nested_outcome : std::uint8_t {
  kept,       // unchanged
  flattened,  // its shards are now plain tensors
  dropped     // torch_compatible: it has no local shard; in a state dict, its key is removed
};

/// The outcome for one sharded tensor, with its path.
struct nested_entry {
  path where;
  nested_outcome outcome = nested_outcome::kept;
  /// The number of other ranks' shards that stay one box because their inside is unknown.
  std::int64_t unknown_shards = 0;
  friend bool operator==(const nested_entry&, const nested_entry&) = default;
};

/// A local shard of a flat tensor: its index in the metadata's list, and its memory.
struct flat_shard {
  std::size_t index = 0;
  const_tensor_view tensor;
};

/// A sharded tensor without nesting, as values and views from which another framework can make its own types.
struct flat_shards {
  sharded_tensor_metadata metadata;
  rank_group group;
  std::int32_t rank = 0;          // this rank, in the group
  std::vector<flat_shard> local;  // in the order of a walk through the shards; refer to the caller's tensors
  nested_outcome outcome = nested_outcome::kept;
  std::int64_t unknown_shards = 0;  // as in `nested_entry`
};

}  // namespace shardmesh

namespace shardmesh::detail {

template <sharded_tensor_like S>
result<rank_group> group_of(const S& tensor) {
  if constexpr (requires { sharded_tensor_adapter<S>::group(tensor); })
    return sharded_tensor_adapter<S>::group(tensor);
  else
    return rank_group::make(sharded_tensor_adapter<S>::global_ranks(tensor));
}

/// Adds a sharded tensor and all tensors nested in it.
template <sharded_tensor_like S>
result<void> add_members(const S& tensor, std::int32_t depth, nest& members) {
  const sharded_tensor_metadata_view metadata = sharded_tensor_adapter<S>::metadata(tensor);
  auto size = as_extents(metadata.size());
  if (!size) return std::move(size).error();
  auto group = group_of(tensor);
  if (!group) return std::move(group).error();
  nest_member member{metadata, *size, *std::move(group), sharded_tensor_adapter<S>::rank(tensor), {}};
  const auto& shards = sharded_tensor_adapter<S>::local_shards(tensor);
  std::vector<shard_metadata_view> local;
  for (const auto& one : shards) local.push_back(shard_adapter<std::remove_cvref_t<decltype(one)>>::metadata(one));
  if (auto valid = check_member(member, local); !valid) return valid;
  const std::size_t at = members.size();
  members.push_back(std::move(member));
  for (const auto& one : shards) {
    std::int32_t inside = -1;
    if constexpr (can_be_nested<std::remove_cvref_t<decltype(one)>>) {
      if (const auto* nested = nested_in(one)) {
        if (depth == max_shard_nesting) return nested_too_deeply(local[members[at].nested.size()]);
        inside = static_cast<std::int32_t>(members.size());
        if (auto added = add_members(*nested, depth + 1, members); !added) return added;
      }
    }
    members[at].nested.push_back(inside);
  }
  return {};
}

template <sharded_tensor_like S>
result<nest> nest_of(const S& outer) {
  nest members;
  if (auto added = add_members(outer, 0, members); !added) return std::move(added).error();
  return members;
}

/// Flattens by the exact policy. `known` holds the other ranks' answers, or is null. `options.inner_metadata` is called
/// for shards that `known` lacks.
result<flat_nest> flatten_exactly(const nest& members, const path& where, const nested_options& options,
                                  const known_insides* known);

/// Adds the innermost local shards, at most `levels` sharded tensors deep, at their places in the flat tensor.
template <sharded_tensor_like S>
result<void> add_innermost(const S& tensor, std::size_t levels, const std::vector<std::size_t>& places,
                           flat_shards& flat) {
  for (const auto& one : sharded_tensor_adapter<S>::local_shards(tensor)) {
    using shard_type = std::remove_cvref_t<decltype(one)>;
    if constexpr (can_be_nested<shard_type>) {
      if (const auto* nested = nested_in(one)) {
        if (levels == 1)
          return at_shard(fail(errc::unsupported, "torch_compatible flattening goes one level deep")
                              .with_hint("nested_policy::exact goes down to the innermost shards"),
                          shard_adapter<shard_type>::metadata(one));
        if (auto added = add_innermost(*nested, levels - 1, places, flat); !added) return added;
        continue;
      }
    }
    const std::size_t index = places[flat.local.size()];
    const shard_metadata& place = flat.metadata.shards[index];
    const const_tensor_view view = view_of_shard(one);
    if (auto same = check_properties(flat.metadata.properties, properties_of_shard(one),
                                     !has_shard_properties<shard_type>, place);
        !same)
      return same;
    if (auto same = check_shard_tensor(view.sizes, place); !same) return same;
    flat.local.push_back({index, view});
  }
  return {};
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Flattens a sharded tensor of any type: returns metadata and views of its tensors. The tensor is unchanged; only
/// metadata is copied.
///
/// No communication. Other ranks' shards and the policies are as for state dicts. A tensor without nested shards is
/// `kept`: the result has the tensor's own shards and group. `nested_options::inner_metadata` gets the empty path.
/// \errors as for state dicts, without a key; errc::invalid_argument if the adapter's rank is not in its group, or its
///         local shards are not those of its metadata; errc::unsupported with torch_compatible for more than one level
/// Cost: O(shards) if there is no error.
template <sharded_tensor_like S>
result<flat_shards> flatten_nested_shards(const S& outer, const nested_options& options = {}) {
  const auto members = detail::nest_of(outer);
  if (!members) return members.error();
  const detail::nest_member& first = members->front();
  const bool as_torch = options.policy == nested_policy::torch_compatible;
  flat_shards made;
  if (as_torch && (first.nested.size() != 1 || first.nested.front() < 0)) {
    auto metadata = first.metadata.copy();
    if (!metadata) return std::move(metadata).error();
    made.metadata = *std::move(metadata);
    made.group = first.group;
    made.rank = first.rank;
    made.outcome = first.nested.empty() ? nested_outcome::dropped : nested_outcome::kept;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < made.metadata.shards.size(); ++i)
      if (made.metadata.shards[i].rank() == made.group.global(made.rank)) places.push_back(i);
    if (auto added = detail::add_innermost(outer, 1, places, made); !added) return std::move(added).error();
    return made;
  }
  auto flat = as_torch ? detail::flatten_nest_as_torch(*members, options.group)
                       : detail::flatten_exactly(*members, path(), options, nullptr);
  if (!flat) return std::move(flat).error();
  made.outcome = flat->is_changed ? nested_outcome::flattened : nested_outcome::kept;
  made.unknown_shards = flat->unknown;
  made.group = flat->is_changed ? std::move(flat->group) : first.group;
  made.rank = flat->is_changed ? flat->rank : first.rank;
  made.metadata = {std::move(flat->shards), first.size, first.metadata.properties()};
  const std::size_t levels = as_torch ? 2 : static_cast<std::size_t>(max_shard_nesting) + 1;
  if (auto added = detail::add_innermost(outer, levels, flat->local, made); !added) return std::move(added).error();
  return made;
}

}  // namespace shardmesh
