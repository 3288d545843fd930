// SPDX-License-Identifier: Apache-2.0
// Making and splitting communicators: the agreement of the ranks before NCCL is called, and the wait for NCCL.
module;
#include "includes.hpp"
module shardmesh.nccl;

import :engine;

namespace shardmesh::nccl {
namespace {

config non_blocking() {
  config made;
  made.blocking = 0;
  return made;
}

// The resources of a rank before it communicates with the others.
struct prepared {
  parts made;
  std::optional<unique_id> id;  // on rank 0 only
};

result<prepared> prepare(std::int32_t rank, device where, const nccl_options& options) {
  SHARDMESH_TRY(cuda::runtime cuda, cuda::runtime::load(options.cudart));
  SHARDMESH_TRY(where, cuda.resolve(where));
  SHARDMESH_TRY(library nccl, library::load(options.nccl));
  SHARDMESH_TRY(cuda::stream stream, cuda::stream::make(cuda, where));
  prepared made{{std::move(cuda), std::move(nccl), where, options, std::move(stream)}, {}};
  if (rank == 0) {
    unique_id id;
    SHARDMESH_TRY(made.made.nccl.check(made.made.nccl.call().get_unique_id(&id), "ncclGetUniqueId", where));
    made.id = id;
  }
  return made;
}

error of_rank(error e, std::int32_t rank, device where, const char* call) {
  e.message = detail::part_of_call("making a NCCL communicator", call) + " for " + to_string(where) + ": " + e.message;
  return detail::reported_by(std::move(e), rank);
}

}  // namespace

communicator_ref told_by(communicator_ref control) {
  const auto* const part = control.target<subgroup_communicator>();
  return part != nullptr ? part->whole() : control;
}

// Starts an empty exchange: it involves no peer, but a poisoned communicator refuses it.
result<void> heard_from(communicator_ref told_by) {
  call_options named;
  named.name = "a call over NCCL";  // shown in the errors of ranks that wait for this one without success
  SHARDMESH_TRY(pending nothing, told_by.start_exchange({}, {}, named));
  return nothing.wait();
}

detail::call_limits limits_of(const call_options& call, const nccl_options& options) {
  detail::call_limits made(call);
  if (made.deadline || options.patience <= std::chrono::milliseconds(0)) return made;
  made.began = clock::now();
  made.deadline = made.began + options.patience;
  return made;
}

result<void> finish_call(const parts& made, void* comm, std::string_view what, std::int32_t rank,
                         const call_options& call, function_ref<result<void>()> heard) {
  const detail::call_limits limits = limits_of(call, made.options);
  for (patience each;; each.rest()) {
    int state = success;
    SHARDMESH_TRY(made.nccl.check(made.nccl.call().comm_get_async_error(comm, &state), "ncclCommGetAsyncError",
                                  made.where, comm));
    SHARDMESH_TRY(made.nccl.check(state, what, made.where, comm));
    if (state != in_progress) return {};
    SHARDMESH_TRY(heard());
    if (const errc ended = limits.reached(); ended != errc::ok) {
      const std::string part = detail::part_of_call(what, call.name) + " on " + to_string(made.where);
      return detail::ended_wait({rank, part, {}, call.tag}, limits, ended);
    }
  }
}

engine::engine(parts made, communicator_ref control, void* comm)
    : parts_(std::move(made)),
      control_(control),
      told_by_(told_by(control)),
      rank_(control.rank()),
      size_(control.size()),
      comm_(comm) {}

engine::engine(parts made, any_communicator own_control, void* comm)
    : parts_(std::move(made)),
      own_control_(std::move(own_control)),
      control_(*own_control_),
      told_by_(told_by(control_)),
      rank_(control_.rank()),
      size_(control_.size()),
      comm_(comm) {}

namespace {

// Makes a shared engine whose destructor does not run in a forked child. It would wait for the engine's thread and for
// the other ranks, and the child has neither.
template <class Control>
std::shared_ptr<engine> shared(parts made, Control&& control, void* comm) {
  const auto end = [](engine* e) {
    if (!e->is_forked()) delete e;
  };
  return {new engine(std::move(made), std::forward<Control>(control), comm), end};
}

}  // namespace

result<std::shared_ptr<engine>> engine::make(communicator_ref control, device where, const nccl_options& options,
                                             const call_options& given) {
  call_options call = given.named("nccl_communicator::make");
  call.stream = {};
  SHARDMESH_TRY(heard_from(control));  // fails in a child forked from a rank, before CUDA and NCCL are called
  auto mine = prepare(control.rank(), where, options);

  // Either all ranks continue or all get the same error. Before this point no rank waits for another.
  agree_options agreeing{.what = "libraries", .ordered = true};
  std::vector<agreement_record> records;
  std::optional<error> problem;
  if (mine) {
    records.push_back({"NCCL", version_text(mine->made.nccl.version())});
    if (mine->id) {
      const auto id = std::as_bytes(std::span(mine->id->internal));
      agreeing.note.assign(id.begin(), id.end());
    }
  } else {
    problem = of_rank(std::move(mine).error(), control.rank(), where, call.name);
    agreeing.problem = &*problem;
  }
  SHARDMESH_TRY(const agreement_notes notes, agree(control, records, agreeing, call));
  unique_id id;
  if (notes.empty() || notes[0].size() != sizeof id.internal)
    return fail(errc::disagreement, "rank 0 sent no ncclUniqueId").with_rank(0);
  std::memcpy(id.internal, notes[0].data(), sizeof id.internal);

  parts& made = mine->made;
  config configuration = non_blocking();
  void* comm = nullptr;
  result<void> begun;
  {
    const cuda::current_device at(made.cuda, made.where);
    begun = at.outcome();
    if (begun)
      begun = made.nccl.check(
          made.nccl.call().comm_init_rank_config(&comm, control.size(), id, control.rank(), &configuration),
          "ncclCommInitRankConfig", made.where);
    if (begun)
      begun = finish_call(made, comm, "ncclCommInitRankConfig", control.rank(), call,
                          [&] { return heard_from(told_by(control)); });
  }
  if (!begun) {
    // The other ranks wait for this one inside NCCL.
    error reason = of_rank(std::move(begun).error(), control.rank(), made.where, call.name);
    control.abort(reason);
    if (comm != nullptr) static_cast<void>(made.nccl.call().comm_abort(comm));
    return heard_from(control) ? reason : heard_from(control).error();  // the error of the first rank that failed
  }
  SHARDMESH_TRY(auto all_made, finished(shared(std::move(made), control, comm)));
  SHARDMESH_TRY(const auto met, control.all_gather({}, call));  // no rank may abort it before all have made it
  return all_made;
}

result<std::shared_ptr<engine>> engine::finished(std::shared_ptr<engine> made) {
  auto before = cuda::event::make(made->parts_.cuda, made->parts_.where);
  if (!before) {
    made->abort(before.error());
    return std::move(before).error();
  }
  made->before_ = *std::move(before);
  return made;
}

result<std::shared_ptr<engine>> engine::split(std::int32_t color, std::int32_t key, const call_options& given) {
  call_options call = given.named("nccl_communicator::split");
  call.stream = {};
  // Every rank learns the color and key of all.
  std::array<std::int32_t, 2> mine{std::max(color, -1), key};
  SHARDMESH_TRY(const auto all, all_gather(std::as_bytes(std::span(mine)), call));
  std::vector<std::pair<std::int32_t, std::int32_t>> ranks;  // by key, then by rank
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::array<std::int32_t, 2> theirs{};
    if (all[r].size() != sizeof theirs)
      return fail(errc::disagreement, "ranks are in different calls").with_rank(static_cast<std::int32_t>(r));
    std::memcpy(theirs.data(), all[r].data(), sizeof theirs);
    if (mine[0] >= 0 && theirs[0] == mine[0]) ranks.emplace_back(theirs[1], static_cast<std::int32_t>(r));
  }
  std::ranges::sort(ranks);
  std::vector<std::int32_t> members;
  for (const auto& [order, rank] : ranks) members.push_back(rank);

  std::optional<any_communicator> control;
  if (!members.empty()) {
    SHARDMESH_TRY(const rank_group group, rank_group::make(std::move(members)));
    SHARDMESH_TRY(control, subgroup(control_, group, call));
  }
  parts of_child{parts_.cuda, parts_.nccl, parts_.where, parts_.options, {}};
  SHARDMESH_TRY(of_child.stream, cuda::stream::make(parts_.cuda, parts_.where));

  const auto heard = [&] { return heard_from(told_by_); };
  config configuration = non_blocking();
  void* comm = nullptr;
  result<void> done;
  // NCCL accepts no call before the previous one is on its stream.
  const detail::call_limits limits = limits_of(call, parts_.options);
  for (patience each;; each.rest()) {
    const guard locked(lock_);
    advance();
    look(std::chrono::milliseconds(1));
    if (const errc ended = limits.reached(); !poison_ && !queue_.empty() && ended != errc::ok)
      poison(detail::ended_wait({rank_, "ncclCommSplit", call.name, call.tag}, limits, ended), true);
    if (poison_) return *poison_;
    if (!queue_.empty()) continue;
    const cuda::current_device at(parts_.cuda, parts_.where);
    done = at.outcome();
    if (done)
      done = parts_.nccl.check(parts_.nccl.call().comm_split(comm_, mine[0], key, &comm, &configuration),
                               "ncclCommSplit", parts_.where, comm_);
    if (done) done = finish_call(parts_, comm_, "ncclCommSplit", rank_, call, heard);
    if (done && comm != nullptr) done = finish_call(of_child, comm, "ncclCommSplit", rank_, call, heard);
    if (done) break;
    if (comm != nullptr) static_cast<void>(parts_.nccl.call().comm_abort(comm));
    poison(std::move(done).error(), true);
    return *poison_;
  }
  std::shared_ptr<engine> child;
  if (comm != nullptr) {
    SHARDMESH_TRY(child, finished(shared(std::move(of_child), *std::move(control), comm)));
  }
  SHARDMESH_TRY(const auto met, all_gather({}, call));  // as in `make`
  return child;
}

nccl_communicator* engine::kept_group(std::span<const std::int32_t> group_of) {
  const guard locked(lock_);
  const auto known = groups_.find({group_of.begin(), group_of.end()});
  return known == groups_.end() ? nullptr : known->second.get();
}

nccl_communicator* engine::keep_group(std::span<const std::int32_t> group_of, nccl_communicator group) {
  const guard locked(lock_);
  auto& kept = groups_[{group_of.begin(), group_of.end()}];
  if (!kept) kept = std::make_unique<nccl_communicator>(std::move(group));
  return kept.get();
}

}  // namespace shardmesh::nccl
