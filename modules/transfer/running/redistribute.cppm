// SPDX-License-Identifier: Apache-2.0
// Moves tensors from one distribution to another in one call. The planner is in `plan`, the executor in `executor`;
// tensors that know their layout are in sharding.
module;
#include <shardmesh/refuse.hpp>
export module shardmesh.transfer:redistribute;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.comm;
import :binding;
import :executor;
import :plan;
import :plan_cache;

export namespace shardmesh {

/// One side of a moving tensor: its distribution, and this rank's memory of it.
template <tensor_view_type View>
struct basic_tensor_side {
  distribution where;
  dtype type = dtype::undefined;  // the same on every rank, including ranks without a part of it
  basic_tensor_binding<View> memory{};

  operator basic_tensor_side<const_tensor_view>() const  // NOLINT: implicit, as for the views
    requires std::same_as<View, tensor_view>
  {
    return {where, type, memory};
  }
};

/// A side that can be written and read.
using tensor_side = basic_tensor_side<tensor_view>;
/// A side that is only read: the source of a move.
using const_tensor_side = basic_tensor_side<const_tensor_view>;

}  // namespace shardmesh

export namespace shardmesh::detail {

// The side over these tensors: read-only if one of them is const.
template <class... T>
using side_over = basic_tensor_side<std::conditional_t<(std::is_const_v<T> || ...), const_tensor_view, tensor_view>>;

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Returns the side whose slots on this rank are the given tensors: slot i is tensor i, in the order of
/// `distribution::fragments_of`. Each tensor is as large as its fragments; set `memory.room` for larger ones. The
/// tensors must live until the move is over. A const tensor gives a `const_tensor_side`, which cannot be a destination.
template <local_tensor... T>
  requires(sizeof...(T) > 0)
detail::side_over<T...> side_of(distribution where, T&... local) {
  detail::side_over<T...> made{std::move(where), dtype::undefined, {{view_of(local)...}}};
  made.type = made.memory.slots.front().type;
  const auto note = [&](const auto& tensor) {
    if (auto sound = check_tensor(tensor); !sound && !made.memory.problem)
      made.memory.problem = std::move(sound).error();
  };
  (note(local), ...);
  if constexpr (!(std::is_const_v<T> || ...) && (counts_writes<T> || ...))
    made.memory.written = [... tensors = &local] { (note_written(*tensors), ...); };
  return made;
}

/// Returns the side of a distributed object (a layout, a dtensor, a sharded tensor) whose part on this rank is one
/// local tensor. The tensor is as large as the rank's part; for a layout, the local shape. The move rejects any other
/// size, so that a whole tensor is not mistaken for a part. With `slot_room::larger`, the part lies at the tensor's
/// beginning.
/// \errors those of `distribution_of`
template <distributed_object D, local_tensor T>
result<detail::side_over<T>> side_of(const D& where, T& local, slot_room room = slot_room::exact) {
  auto made = distribution_of(where);
  if (!made) return std::move(made).error();
  detail::side_over<T> side = side_of(*std::move(made), local);
  side.memory.room = room;
  return side;
}

/// Returns the side for a rank that holds nothing of the tensor.
inline tensor_side side_of(distribution where, dtype type) {
  return {std::move(where), type, {}};
}

/// Returns the side of a distributed object for a rank that holds nothing of it. \errors those of `distribution_of`
template <distributed_object D>
result<tensor_side> side_of(const D& where, dtype type) {
  auto made = distribution_of(where);
  if (!made) return std::move(made).error();
  return side_of(*std::move(made), type);
}

/// Rejects memory that is not a tensor.
template <distributed D, class T>
  requires(!local_tensor<T> && !std::same_as<std::remove_const_t<T>, dtype>)
tensor_side side_of(const D& where, T& local) = SHARDMESH_REFUSE(
    "what moves is a tensor: specialise shardmesh::adapter for this type (shardmesh/adapter.hpp), or use host_tensor");

/// Plans the move of one tensor between two distributed objects with the same dtype. No byte moves.
/// \errors those of `distribution_of` and of `plan`
template <distributed From, distributed To>
result<transfer_plan> plan(const From& from, const To& to, dtype type, const plan_options& options = {}) {
  auto source = distribution_of(from);
  if (!source) return std::move(source).error();
  auto destination = distribution_of(to);
  if (!destination) return std::move(destination).error();
  std::vector<tensor_transfer> one;
  one.push_back({*std::move(source), *std::move(destination), type, type});
  return plan(std::move(one), options);
}

/// One tensor of a redistribution.
struct tensor_move {
  std::string key{};  // name in errors
  const_tensor_side from;
  tensor_side to;
};

/// The plan and run options of `redistribute`. The fields mean the same as in `plan_options` and `run_options`. The
/// first four are the same on every rank (otherwise errc::disagreement).
struct redistribute_options {
  std::int64_t memory_bytes = 0;  // limit for messages and sums; 0 and `unlimited_memory` as in `plan_options`
  bool allow_narrowing = false;   // permits casts that lose values
  bool deterministic = true;      // sums in ascending term order; false: by the communicator's reductions, if any
  check_policy check = check_policy::once;
  std::function<void(std::int64_t bytes)> progress{};  // called with the bytes just received or copied
  plan_cache* cache = nullptr;                         // plans of earlier calls; this call adds its own
  call_options call{};
};

/// The result of a redistribution on this rank.
struct redistribute_report {
  std::int64_t sent_bytes = 0, received_bytes = 0;
  std::int64_t rounds = 1;         // number of rounds that the memory budget required
  std::int64_t scratch_bytes = 0;  // memory of messages and sums, in addition to the tensors
};

/// Moves tensors together: each pair of ranks exchanges one message per round, whatever the number of tensors.
///
/// Collective; blocks. Every rank calls it with the same keys, distributions, and dtypes in the same order. If the
/// ranks agree, it costs one `agree`; then each rank receives the bytes that it wants and does not hold, each once.
/// Sources do not change. A destination may share memory with a source only where nothing changes.
/// \errors those of `plan` and `executor::make`, on every rank and before anything moves, even if only one rank fails;
///         those of `executor::run`
/// Cost: for the plan, O(this rank's copies); O(tensors) if `cache` has it. To move the same tensors many times, keep
/// an `executor`, which also skips the agreement and allocates nothing.
/// Source: torch.distributed.tensor.DTensor.redistribute, torch.distributed.scatter, broadcast, gather
result<redistribute_report> redistribute(std::span<const tensor_move> tensors, communicator_ref comm,
                                         const redistribute_options& options = {});

/// Moves one tensor, as above.
result<redistribute_report> redistribute(const const_tensor_side& from, const tensor_side& to, communicator_ref comm,
                                         const redistribute_options& options = {});

/// Returns the distribution in which one rank holds the whole tensor, in slot 0: for a gather to it, or a scatter from
/// it.
/// \errors errc::invalid_argument (a negative rank or size), errc::overflow
result<distribution> on_one_rank(const extents& shape, std::int32_t rank);

/// Returns the distribution in which each rank 0 .. ranks - 1 holds the whole tensor, in slot 0. A move to it from
/// `on_one_rank` is a broadcast.
/// \errors as `on_one_rank`; errc::invalid_argument also if `ranks` is 0
result<distribution> on_every_rank(const extents& shape, std::int32_t ranks);

}  // namespace shardmesh
