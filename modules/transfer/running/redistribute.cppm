// SPDX-License-Identifier: Apache-2.0
// redistribute: tensors from where one distribution holds them to where another wants them, in one call. Not here: who
// sends what (plan), how (executor), tensors that know their layout (room sharding).
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

/// One side of a tensor that moves: who holds it or wants it, and this rank's memory of it.
template <tensor_view_type View>
struct basic_tensor_side {
  distribution where;
  dtype type = dtype::undefined;  // the same on every rank, also on those that have nothing of it
  basic_tensor_binding<View> memory{};

  operator basic_tensor_side<const_tensor_view>() const  // NOLINT: implicit, as of the views
    requires std::same_as<View, tensor_view>
  {
    return {where, type, memory};
  }
};

/// A side that can be filled, and read.
using tensor_side = basic_tensor_side<tensor_view>;
/// A side that is only read: where a tensor comes from.
using const_tensor_side = basic_tensor_side<const_tensor_view>;

}  // namespace shardmesh

export namespace shardmesh::detail {

// Of tensors one of which is const, a side that is only read.
template <class... T>
using side_over = basic_tensor_side<std::conditional_t<(std::is_const_v<T> || ...), const_tensor_view, tensor_view>>;

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A side of which this rank has the given tensors: slot i is tensor i, in the order of `distribution::fragments_of`,
/// as large as its fragments (set `memory.room` for larger ones). They live until the move is over. Of a const tensor
/// it is a `const_tensor_side`, which nothing is moved to.
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

/// The side of whatever is distributed (a layout, a dtensor, a sharded tensor) of which this rank has one local tensor,
/// as large as its part (of a layout, of the local shape): the move refuses another one, so that the whole tensor is
/// not taken for a part of it. With `slot_room::larger` the part is at its beginning.
/// \errors those of `distribution_of`
template <distributed_object D, local_tensor T>
result<detail::side_over<T>> side_of(const D& where, T& local, slot_room room = slot_room::exact) {
  auto made = distribution_of(where);
  if (!made) return std::move(made).error();
  detail::side_over<T> side = side_of(*std::move(made), local);
  side.memory.room = room;
  return side;
}

/// A side of which this rank has nothing.
inline tensor_side side_of(distribution where, dtype type) {
  return {std::move(where), type, {}};
}

/// The same of whatever is distributed. \errors those of `distribution_of`
template <distributed_object D>
result<tensor_side> side_of(const D& where, dtype type) {
  auto made = distribution_of(where);
  if (!made) return std::move(made).error();
  return side_of(*std::move(made), type);
}

/// Memory that is no tensor to us.
template <distributed D, class T>
  requires(!local_tensor<T> && !std::same_as<std::remove_const_t<T>, dtype>)
tensor_side side_of(const D& where, T& local) = SHARDMESH_REFUSE(
    "what moves is a tensor: specialise shardmesh::adapter for this type (shardmesh/adapter.hpp), or use host_tensor");

/// The plan of one tensor between any two that are distributed, of one dtype: what moves, before a byte does.
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

/// A tensor of a redistribution.
struct tensor_move {
  std::string key{};  // in errors
  const_tensor_side from;
  tensor_side to;
};

/// How `redistribute` plans and runs, in one: the fields mean what they mean in `plan_options` and `run_options`. The
/// first four are the same on every rank (errc::disagreement).
struct redistribute_options {
  std::int64_t memory_bytes = 0;  // that messages and sums may take; 0 and `unlimited_memory` as in `plan_options`
  bool allow_narrowing = false;   // casts that lose values
  bool deterministic = true;  // sums in ascending term order; false: by the communicator's reductions, if it has any
  check_policy check = check_policy::once;
  std::function<void(std::int64_t bytes)> progress{};  // called with the bytes that this rank just got or copied
  plan_cache* cache = nullptr;                         // plans that other calls made; used by this one
  call_options call{};
};

/// What a redistribution was on this rank.
struct redistribute_report {
  std::int64_t sent_bytes = 0, received_bytes = 0;
  std::int64_t rounds = 1;         // into which the memory budget cut the exchange
  std::int64_t scratch_bytes = 0;  // memory that messages and sums took beside the tensors
};

/// Moves tensors, all of them together: what goes from one rank to another is one message (a round), whatever the
/// number of tensors.
///
/// Collective: every rank calls it with the same keys, distributions and dtypes in the same order; blocks. One
/// all_gather when the ranks agree, then the bytes that a rank wants and does not hold, each once. Sources stay as they
/// are; a destination may share memory with a source only where nothing changes.
/// \errors those of `plan` and `executor::make`, on every rank, before anything moves: also when they are one rank's
///         alone; those of `executor::run`
/// Cost: of a plan, O(this rank's copies); with `cache` and a plan in it O(tensors). To move the same tensors many
/// times keep an `executor`, which also skips the agreement and allocates nothing. Source:
/// torch.distributed.tensor.DTensor.redistribute, torch.distributed.scatter, broadcast, gather
result<redistribute_report> redistribute(std::span<const tensor_move> tensors, communicator_ref comm,
                                         const redistribute_options& options = {});

/// One tensor. As above.
result<redistribute_report> redistribute(const const_tensor_side& from, const tensor_side& to, communicator_ref comm,
                                         const redistribute_options& options = {});

/// One rank holds the whole tensor, in slot 0: to gather to it, or to scatter from it.
/// \errors errc::invalid_argument (a negative rank or size), errc::overflow
result<distribution> on_one_rank(const extents& shape, std::int32_t rank);

/// Each of the ranks 0 .. ranks - 1 holds the whole tensor, in slot 0: from `on_one_rank` it is a broadcast.
/// \errors as `on_one_rank`; errc::invalid_argument: no rank
result<distribution> on_every_rank(const extents& shape, std::int32_t ranks);

}  // namespace shardmesh
