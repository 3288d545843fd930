// SPDX-License-Identifier: Apache-2.0
// flatten_nested_shards of state dicts: flattens sharded tensors whose shards are sharded tensors. The boxes and owners
// are in nest; one sharded tensor of any type is in flatten_shards.
export module shardmesh.state:flatten_nested;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :dict_tree;
import :flat;
import :flatten_shards;
import :nest;
import :value;

export namespace shardmesh {

/// A state dict without nested shards, and the outcome for each of its sharded tensors, in order.
template <local_tensor T>
struct flattened_state {
  state_dict<T> dict;
  std::vector<nested_entry> report;
};

}  // namespace shardmesh

namespace shardmesh::detail {

/// Moves out the innermost shards, in the order of `flat_nest::local`, through at most `levels` nested sharded tensors.
/// No recursion.
template <local_tensor T>
std::vector<shard<T>> take_innermost(sharded_tensor<T> outer, std::size_t levels) {
  struct open_shards {
    std::vector<shard<T>> shards;
    std::size_t next = 0;
  };
  std::vector<shard<T>> taken;
  std::vector<open_shards> open;
  open.push_back({std::move(outer).take_local_shards()});
  while (!open.empty()) {
    if (open.back().next == open.back().shards.size()) {
      open.pop_back();
      continue;
    }
    shard<T>& one = open.back().shards[open.back().next++];
    if (one.is_nested() && open.size() < levels)
      open.push_back({std::move(one.nested()).take_local_shards()});
    else
      taken.push_back(std::move(one));
  }
  return taken;
}

/// Makes the flat tensor from this rank's innermost shards, which are moved and get their new metadata.
template <local_tensor T>
result<sharded_tensor<T>> rebuild(sharded_tensor<T> outer, flat_nest flat, std::size_t levels) {
  sharded_tensor_metadata metadata{std::move(flat.shards), outer.size(), outer.metadata().properties};
  std::vector<shard<T>> local = take_innermost(std::move(outer), levels);
  for (std::size_t i = 0; i < local.size(); ++i) {
    const shard_metadata& place = metadata.shards[flat.local[i]];
    if (!local[i].is_nested()) {
      auto same = check_properties(metadata.properties, properties_of(std::as_const(local[i]).tensor()),
                                   !has_shard_properties<shard<T>>, place);
      if (!same) return std::move(same).error();
    }
    auto moved = std::move(local[i]).with_metadata(place);
    if (!moved) return std::move(moved).error();
    local[i] = *std::move(moved);
  }
  return sharded_tensor<T>::make(std::move(local), std::move(metadata), std::move(flat.group), flat.rank);
}

inline error at_key(error e, const path& where) {
  return std::move(e).with_key(to_string(where));
}

/// Flattens exactly; `known` holds the other ranks' answers, or is null.
template <local_tensor T>
result<flattened_state<T>> flatten_exactly(state_dict<T> dict, const nested_options& options,
                                           const known_insides* known) {
  flattened_state<T> made;
  const std::vector<path> paths = dict.spec().leaf_paths();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    sharded_tensor<T>* tensor = dict.leaves()[i].sharded_tensor();
    if (tensor == nullptr) continue;
    const path& where = paths[i];
    auto members = nest_of(*tensor);
    if (!members) return at_key(std::move(members).error(), where);
    auto flat = flatten_exactly(*members, where, options, known);
    if (!flat) return at_key(std::move(flat).error(), where);
    if (!flat->is_changed) {
      made.report.push_back({where, nested_outcome::kept, flat->unknown});
      continue;
    }
    made.report.push_back({where, nested_outcome::flattened, flat->unknown});
    auto rebuilt = rebuild(std::move(*tensor), *std::move(flat), static_cast<std::size_t>(max_shard_nesting) + 1);
    if (!rebuilt) return at_key(std::move(rebuilt).error(), where);
    dict.leaves()[i] = *std::move(rebuilt);
  }
  made.dict = std::move(dict);
  return made;
}

/// Flattens as PyTorch does, with its traversal.
template <local_tensor T>
result<flattened_state<T>> flatten_as_torch(state_dict<T> dict, const nested_options& options) {
  flattened_state<T> made;
  std::vector<named_part<T>> parts;
  for (torch_item& item : torch_items(dict.spec(), tensor_mask(dict))) {
    const tree_node& node = dict.spec().nodes()[item.node];
    const auto first = dict.leaves().begin() + static_cast<std::ptrdiff_t>(item.first_leaf);
    if (node.kind != node_kind::leaf) {
      std::vector<state_value<T>> leaves(std::make_move_iterator(first),
                                         std::make_move_iterator(first + static_cast<std::ptrdiff_t>(node.leaves)));
      parts.push_back({{},
                       std::move(item.where),
                       *state_dict<T>::make(tree_editor::subtree(dict.spec(), item.node), std::move(leaves))});
      continue;
    }
    state_value<T> value = std::move(*first);
    if (sharded_tensor<T>* tensor = value.sharded_tensor()) {
      const std::span<const shard<T>> local = std::as_const(*tensor).local_shards();
      nested_outcome outcome = local.empty() ? nested_outcome::dropped : nested_outcome::kept;
      if (local.size() == 1 && local.front().is_nested()) {
        outcome = nested_outcome::flattened;
        auto members = nest_of(*tensor);
        if (!members) return at_key(std::move(members).error(), item.where);
        auto flat = flatten_nest_as_torch(*members, options.group);
        if (!flat) return at_key(std::move(flat).error(), item.where);
        auto rebuilt = rebuild(std::move(*tensor), *std::move(flat), 2);
        if (!rebuilt) return at_key(std::move(rebuilt).error(), item.where);
        value = *std::move(rebuilt);
      }
      made.report.push_back({item.where, outcome, 0});
      if (outcome == nested_outcome::dropped) continue;
    }
    parts.push_back({{}, std::move(item.where), std::move(value)});
  }
  auto rest = unflatten(std::move(parts));
  if (!rest) return std::move(rest).error();
  made.dict = *std::move(rest);
  return made;
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Flattens every sharded tensor whose shards are sharded tensors. Tensors are moved, not copied.
///
/// No communication. The inside of a shard that this rank holds is known, including all its holders. The inside of
/// another rank's shard is known only through `options.inner_metadata`. A shard with an unknown inside stays one box of
/// its outer owner, and the report counts it.
/// \errors naming key, ranks, and boxes: errc::gap and errc::overlap if the innermost shards do not cover the tensor
///         exactly; errc::out_of_bounds, errc::shape_mismatch for shards that leave the tensor that contains them;
///         errc::dtype_mismatch, errc::invalid_argument if a local tensor contradicts the outer metadata, if nested
///         tensors name different ranks as this process, or if a holder is not in `options.group`. With
///         torch_compatible also errc::unsupported (the number of inner shards is not one) and errc::duplicate_key (two
///         keys with the same name).
/// Cost: O(nodes + shards) if there is no error.
/// Source: torch.distributed.checkpoint._sharded_tensor_utils._flatten_sharded_tensors
template <local_tensor T>
result<flattened_state<T>> flatten_nested_shards(state_dict<T> dict, const nested_options& options = {}) {
  if (options.policy == nested_policy::torch_compatible) return detail::flatten_as_torch(std::move(dict), options);
  return detail::flatten_exactly<T>(std::move(dict), options, nullptr);
}

/// The same with the true owners of every shard: ranks exchange the metadata inside their shards.
///
/// Collective: every rank of the communicator calls it, even if its state dict has other keys or none. Blocks. Two
/// all_gathers serve any number of tensors: one of the metadata of nested shards (a few bytes each), and one of success
/// or failure. If the call fails on any rank, every rank gets the error of the lowest such rank.
/// \param comm   a communicator whose rank i is group rank i
/// \param group  the global ranks that placements name; flat tensors are of this group unless `options.group` is set
/// \errors as above; errc::bad_format for a message that cannot be decoded; those of `all_gather`;
///         errc::invalid_argument with torch_compatible, which needs no communication
/// Cost: O(nodes + nested shards of all ranks).
template <local_tensor T>
result<flattened_state<T>> flatten_nested_shards(state_dict<T> dict, communicator_ref comm, const rank_group& group,
                                                 const nested_options& options = {}) {
  std::optional<error> problem;
  if (options.policy != nested_policy::exact)
    problem = fail(errc::invalid_argument, "torch_compatible flattening needs no communication")
                  .with_hint("call flatten_nested_shards without a communicator");
  else if (group.size() != comm.size())
    problem = fail(errc::invalid_argument, "the group is not the communicator's")
                  .with_values(std::to_string(comm.size()) + " ranks", std::to_string(group.size()));
  detail::known_insides known;
  if (!problem) {
    const std::vector<path> paths = dict.spec().leaf_paths();
    for (std::size_t i = 0; i < paths.size(); ++i)
      if (const auto* tensor = std::as_const(dict).leaves()[i].sharded_tensor(); tensor && tensor->nesting() > 0)
        if (const auto members = detail::nest_of(*tensor)) known.add(to_string(paths[i]), *members);
  }
  agree_options round;
  round.what = "nested shards";
  round.note.assign(known.bytes().begin(), known.bytes().end());
  round.problem = problem ? &*problem : nullptr;
  auto received = agree(comm, std::span<const agreement_record>(), round, options.call.named("flatten_nested_shards"));
  if (!received) return std::move(received).error();

  nested_options with_group = options;
  if (!with_group.group) with_group.group = group;
  auto made = [&]() -> result<flattened_state<T>> {
    if (auto read = known.read(*received, group); !read) return std::move(read).error();
    return detail::flatten_exactly<T>(std::move(dict), with_group, &known);
  }();
  round.note.clear();
  round.problem = made ? nullptr : &made.error();
  auto agreed = agree(comm, std::span<const agreement_record>(), round, options.call.named("flatten_nested_shards"));
  if (!agreed) return std::move(agreed).error();
  return made;
}

}  // namespace shardmesh
