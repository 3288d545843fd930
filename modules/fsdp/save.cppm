// SPDX-License-Identifier: Apache-2.0
// Full, sharded, and local state dicts of FSDP units. Only bytes that change owner move. Planning the transfers is in
// planned; loading state dicts is in load.
export module shardmesh.fsdp:save;

import shardmesh.std;
import shardmesh.state;
import :model;
import :mover;
import :planned;

export namespace shardmesh {

/// A state dict and its measured cost.
template <local_tensor T>
struct saved_state {
  state_dict<T> state;
  fsdp_profile profile;
};

/// A visitor of one T (a tensor, or a state_value of a part) at a time: `visit(key, value)`, which returns nothing or a
/// result<void>.
template <class V, class T>
concept tensor_visitor = std::invocable<V&, std::string_view, T> &&
                         (std::is_void_v<std::invoke_result_t<V&, std::string_view, T>> ||
                          std::same_as<std::invoke_result_t<V&, std::string_view, T>, result<void>>);

}  // namespace shardmesh

namespace shardmesh::detail {

// Makes the value of an entry whose memory is filled.
template <local_tensor T>
result<state_value<T>> to_value(planned_entry entry, std::optional<T> tensor, std::int32_t rank) {
  if (entry.form == entry_form::tensor) return state_value<T>(*std::move(tensor));
  if (entry.form == entry_form::dtensor) {
    auto made = dtensor<T>::make(*std::move(entry.placed), rank, std::move(tensor));
    if (!made) return std::move(made).error().with_key(entry.key);
    return state_value<T>(*std::move(made));
  }
  std::vector<shard<T>> shards;
  if (entry.has_part) {
    auto own = shard<T>::make(*std::move(tensor), entry.metadata.shards[entry.own_shard]);
    if (!own) return std::move(own).error().with_key(entry.key);
    shards.push_back(*std::move(own));
  }
  auto made =
      sharded_tensor<T>::make(std::move(shards), std::move(entry.metadata), std::move(entry.group), entry.group_rank);
  if (!made) return std::move(made).error().with_key(entry.key);
  return state_value<T>(*std::move(made));
}

template <class T, tensor_visitor<T> V>
result<void> give(V& visit, const std::string& key, T value) {
  if constexpr (std::is_void_v<std::invoke_result_t<V&, std::string_view, T>>) {
    visit(std::string_view(key), std::move(value));
    return {};
  } else {
    return visit(std::string_view(key), std::move(value));
  }
}

// Makes the entries run by run, and passes each to `take(entry, optional tensor)`. Other names of an entry are made
// together with it, and kept until their turn.
template <allocatable_tensor T, class Take>
result<fsdp_profile> make_entries(entry_mover mover, std::int64_t run_bytes, Take&& take) {
  try {
    std::map<std::size_t, T> waiting;
    for (std::size_t first = 0, last = 0; first < mover.entries().size(); first = last) {
      last = mover.next_run(first, run_bytes).second;
      std::vector<std::optional<T>> tensors(last - first);
      std::vector<tensor_view> views(last - first);
      result<void> mine;
      const auto make = [&](const planned_entry& entry) -> std::optional<T> {
        auto made = allocated<T>(entry.type, entry.local, entry.where);
        if (made) return std::optional<T>(*std::move(made));
        mine = std::move(made).error().with_key(entry.key);
        return std::nullopt;
      };
      for (std::size_t i = first; mine && i < last; ++i) {
        const planned_entry& entry = mover.entries()[i];
        if (!entry.has_part) continue;
        if (auto made_before = waiting.extract(i); !made_before.empty())
          tensors[i - first].emplace(std::move(made_before.mapped()));
        else if (auto made = make(entry))
          tensors[i - first].emplace(*std::move(made));
        if (mine) views[i - first] = adapter<T>::view(*tensors[i - first]);
        for (const std::size_t name : mover.other_names(i))
          if (mine && name >= last)
            if (auto made = make(mover.entries()[name])) waiting.emplace(name, *std::move(made));
      }
      auto moved = mover.move(first, last, views, mine);
      if (!moved) return std::move(moved).error();
      for (std::size_t i = first; moved && i < last; ++i)
        for (const std::size_t name : mover.other_names(i))
          if (moved && mover.entries()[i].has_part)
            moved =
                copy_between(name < last ? views[name - first] : adapter<T>::view(waiting.at(name)), views[i - first]);
      for (std::size_t i = first; moved && i < last; ++i)
        if (mover.entries()[i].form != entry_form::none)
          moved = take(std::move(mover.entries()[i]), std::move(tensors[i - first]));
      if (!moved) {
        mover.abort(moved.error());
        return std::move(moved).error();
      }
    }
  } catch (const std::exception& e) {
    mover.abort(fail(errc::no_memory, std::string("a rank could not continue with a state dict: ") + e.what()));
    throw;
  }
  if (auto finished = mover.finish(); !finished) return std::move(finished).error();
  return mover.profile();
}

template <allocatable_tensor T>
result<saved_state<T>> collect(result<entry_mover> mover, std::int32_t rank, std::int64_t run_bytes) {
  if (!mover) return std::move(mover).error();
  state_dict_builder<T> builder;
  builder.begin(node_kind::mapping);
  auto done =
      make_entries<T>(*std::move(mover), run_bytes, [&](planned_entry entry, std::optional<T> tensor) -> result<void> {
        std::string key = entry.key;
        auto value = to_value<T>(std::move(entry), std::move(tensor), rank);
        if (!value) return std::move(value).error();
        builder.value(std::move(key), *std::move(value));
        return {};
      });
  if (!done) return std::move(done).error();
  builder.end();
  auto made = builder.finish();
  if (!made) return std::move(made).error();
  return saved_state<T>{*std::move(made), *done};
}

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Passes a visitor one whole tensor at a time, in key order, on all ranks or on one. Collective; blocks; every rank of
/// the communicator calls it, including ranks that get nothing. At most `options.memory_bytes` of results (at least one
/// tensor) are alive at a time; messages have the default limit of `plan_options`. Copies for the other names of tied
/// parameters are not counted: they are made with the first name, and kept until their turn.
/// \param model  its memory must not change during the call
/// \errors those of `plan_full`, the executor, and the visitor; errors that `allocate` throws; errc::unsupported
///         (memory that no backend reaches) naming the key; every rank gets an error. errc::disagreement when ranks
///         describe different models
/// Cost: bytes that receivers lack travel once, whatever the number of their names.
template <allocatable_tensor T, tensor_visitor<T> V>
result<fsdp_profile> stream_full_state_dict(const fsdp_model& model, communicator_ref comm, V&& visit,
                                            const full_state_options& options = {}) {
  auto mover = detail::entry_mover::start(plan_full(model, comm.rank(), options), comm, 0,
                                          options.call.named("full_state_dict"));
  if (!mover) return std::move(mover).error();
  return detail::make_entries<T>(*std::move(mover), options.memory_bytes,
                                 [&](planned_entry entry, std::optional<T> tensor) {
                                   return detail::give<T>(visit, entry.key, *std::move(tensor));
                                 });
}

/// Returns whole tensors under the names of the model, on all ranks or on one. Collective; blocks.
/// `stream_full_state_dict` needs less memory.
/// \errors, cost as `stream_full_state_dict`
/// Source: torch.distributed.fsdp._state_dict_utils, FULL_STATE_DICT
template <allocatable_tensor T>
result<saved_state<T>> full_state_dict(const fsdp_model& model, communicator_ref comm,
                                       const full_state_options& options = {}) {
  return detail::collect<T>(detail::entry_mover::start(plan_full(model, comm.rank(), options), comm, 0,
                                                       options.call.named("full_state_dict")),
                            comm.rank(), options.memory_bytes);
}

/// Passes a visitor this rank's part of one entry at a time, in key order: a sharded tensor or a dtensor, or a tensor
/// if the unit is not sharded. Collective; blocks; every rank of the communicator calls it. At most
/// `options.memory_bytes` (0: 256 MiB) of results (at least one part), and as many bytes of messages, are alive at a
/// time. A model can thus be saved or sent without a second copy of its shards.
/// \errors those of `plan_sharded`, the executor, and the visitor; errors that `allocate` throws; errc::unsupported
///         (memory that no backend reaches) naming the key; every rank gets an error. errc::disagreement
/// Cost: only bytes that change owner travel; no parameter is whole anywhere.
template <allocatable_tensor T, tensor_visitor<state_value<T>> V>
result<fsdp_profile> stream_sharded_state_dict(const fsdp_model& model, communicator_ref comm, V&& visit,
                                               const sharded_state_options& options = {}) {
  const std::int64_t budget = options.memory_bytes > 0 ? options.memory_bytes : full_state_options().memory_bytes;
  auto mover = detail::entry_mover::start(plan_sharded(model, comm.rank(), options), comm, budget,
                                          options.call.named("sharded_state_dict"));
  if (!mover) return std::move(mover).error();
  return detail::make_entries<T>(*std::move(mover), budget,
                                 [&](planned_entry entry, std::optional<T> tensor) -> result<void> {
                                   const std::string key = entry.key;
                                   auto value = detail::to_value<T>(std::move(entry), std::move(tensor), comm.rank());
                                   if (!value) return std::move(value).error();
                                   return detail::give<state_value<T>>(visit, key, *std::move(value));
                                 });
}

/// Returns sharded tensors or dtensors under the names of the model; every rank gets its part. Collective; blocks.
/// \errors those of `plan_sharded` and the executor; every rank gets an error. errc::disagreement
/// Cost: only bytes that change owner travel; no parameter is whole anywhere. `stream_sharded_state_dict` needs less
///       memory.
/// Source: torch.distributed.fsdp._state_dict_utils, SHARDED_STATE_DICT
template <allocatable_tensor T>
result<saved_state<T>> sharded_state_dict(const fsdp_model& model, communicator_ref comm,
                                          const sharded_state_options& options = {}) {
  return detail::collect<T>(detail::entry_mover::start(plan_sharded(model, comm.rank(), options), comm,
                                                       options.memory_bytes, options.call.named("sharded_state_dict")),
                            comm.rank(), 0);
}

/// Returns the flat shards as they are, without padding at the end, as 1-D sharded tensors named
/// "<module>._flat_param". No communication: the metadata follows from the flat parameter.
/// \param rank  this process in the units' communicator
/// \errors those of `plan_local`
/// Cost: one copy of the shards.
/// Source: torch.distributed.fsdp._state_dict_utils, LOCAL_STATE_DICT
template <allocatable_tensor T>
result<saved_state<T>> local_state_dict(const fsdp_model& model, std::int32_t rank,
                                        const local_state_options& options = {}) {
  return detail::collect<T>(detail::entry_mover::start(plan_local(model, rank, options), std::nullopt, 0, {}), rank, 0);
}

}  // namespace shardmesh
