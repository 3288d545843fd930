// SPDX-License-Identifier: Apache-2.0
// The agreement of all ranks on an executor, and the start of runs. The run itself is in `run.cpp`.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <shardmesh/try.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :bound_memory;
import :collective;
import :concurrent_runs;
import :executor_records;
import :expand;
import :group_check;
import :rank_ability;
import :rank_plan;
import :route;
import :run;
import :schedule;

namespace shardmesh {
namespace {

// Chooses the rounds that keep the rank's memory budget.
void choose(const rank_plan& mine, std::int32_t rank, rank_ability& own) {
  const round_choice packed = choose_rounds(mine, true);
  const short_budget budget{rank, mine.budget_bytes(), packed.needed_bytes};
  const auto set = [&](std::int64_t& rounds, short_budget& lowest, std::int64_t chosen) {
    if (chosen != 0)
      rounds = chosen;
    else
      lowest = budget;
  };
  set(own.rounds, own.packing, packed.rounds.value_or(0));
  if (own.lends != 0) set(own.lending_rounds, own.lending, choose_rounds(mine, false).rounds.value_or(0));
  own.sent_bytes = mine.sent_bytes();
}

// Returns the features of this rank, before its rounds are chosen.
rank_ability features_of(const transfer_plan& plan, communicator_ref comm, const run_options& options, bool lends) {
  rank_ability own{.lends = lends ? 1U : 0U};
  if (options.whole_plan && comm.has_collectives())
    own.collects = (plan.options().deterministic ? 0U : collects_reductions) |
                   (comm.is_ordered() ? collects_gathers : 0U) | (comm.has_groups() ? collects_in_groups : 0U);
  return own;
}

collective_plan collectives_of(const transfer_plan& plan, communicator_ref comm, const rank_ability& all) {
  const auto may_use = [&](std::uint32_t what) { return (all.collects & what) != 0; };
  if (!may_use(collects_reductions | collects_gathers)) return {};
  return collectives_in(plan, comm.rank(), comm.size(),
                        {.reductions = may_use(collects_reductions),
                         .gathers = may_use(collects_gathers),
                         .groups = may_use(collects_in_groups)});
}

}  // namespace

result<executor> executor::make(transfer_plan plan, communicator_ref comm, std::vector<std::string> keys,
                                const run_options& options, const call_options& given) {
  const call_options call = given.named("executor::make");
  result<void> sound;
  if (!keys.empty() && keys.size() != plan.transfers().size())
    sound = fail(errc::invalid_argument, "an executor needs one key per transfer, or none")
                .with_values(fmt::to_string(plan.transfers().size()), fmt::to_string(keys.size()));
  if (!sound) keys.clear();
  const std::vector<std::string> names = names_of(plan, keys);
  if (sound) sound = check_transfers(plan, comm.size(), names);

  // The host's own kernels work piece by piece, and on peers' memory if the ranks share it. Other backends work on
  // tables.
  std::shared_ptr<kernel_backend> backend;
  if (auto found = backend_for(comm.memory()); !found) {
    if (sound) sound = std::move(found).error().with_rank(comm.rank());
  } else if (*found != host_backend()) {
    backend = *std::move(found);
  }

  agree_options agreement{.what = "transfers", .ordered = true};
  const bool lends = options.in_place && comm.shares_memory() && !backend;
  rank_ability own = features_of(plan, comm, options, lends);
  rank_plan mine = plan.for_owner(comm.rank());
  if (sound) choose(mine, comm.rank(), own);
  object_numbers numbers = comm.numbers();
  agreement.note = note_of(own, numbers.offer(numbered_object::executor));
  agreement.combine = combine_abilities;
  if (!sound) agreement.problem = &sound.error();
  SHARDMESH_TRY(const agreement_notes notes, agree(
                                                 comm, digest_of_all(plan, keys, options),
                                                 [&] { return records_of(plan, names, options); }, agreement, call));
  SHARDMESH_TRY(const rank_ability all, common_ability(notes.front()));
  const std::span<const std::byte> offer = offer_in(notes.front());
  SHARDMESH_TRY(const std::uint32_t number, numbers.choose(numbered_object::executor, {&offer, 1}));
  collective_plan collectives = collectives_of(plan, comm, all);
  for (const collective_use& use : collectives.uses) mine.leave_out(use.transfer);
  std::vector<communicator_ref> groups;
  for (const std::vector<std::int32_t>& group_of : collectives.groups) {
    SHARDMESH_TRY(const communicator_ref group, comm.groups(group_of, call));
    groups.push_back(group);
  }
  run_setup setup{.lends = all.lends != 0,
                  .rounds = all.rounds,
                  .number = numbers.hold(numbered_object::executor, number),
                  .collectives = std::move(collectives.uses),
                  .groups = std::move(groups),
                  .backend = std::move(backend)};
  auto made = std::make_shared<state>(std::move(plan), mine, comm, names, options, std::move(setup));
  made->moved_bytes = all.sent_bytes;
  return executor(std::move(made));
}

result<executor> executor::make(result<transfer_plan> plan, communicator_ref comm, std::vector<std::string> keys,
                                const run_options& options, const call_options& given) {
  const call_options call = given.named("executor::make");
  if (plan) return make(*std::move(plan), comm, std::move(keys), options, call);
  // The other ranks may have plans, so they must be notified.
  agree_options agreement{.what = "transfers", .ordered = true, .problem = &plan.error()};
  SHARDMESH_TRY(const agreement_notes notes,
                agree(comm, {}, [] { return std::vector<agreement_record>(); }, agreement, call));
  return plan.error();
}

const transfer_plan& executor::plan() const {
  return state_->plan;
}

std::int64_t executor::rounds() const {
  return state_->rounds;
}
std::int64_t executor::moved_bytes() const {
  return state_->moved_bytes;
}
std::int64_t executor::sent_bytes() const {
  return state_->steps().sent_bytes();
}
std::int64_t executor::received_bytes() const {
  return state_->steps().received_bytes();
}
std::int64_t executor::peak_bytes() const {
  return state_->peak_bytes();
}
std::int64_t executor::scratch_bytes() const {
  return state_->scratch_bytes();
}

result<pending> executor::start(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                                const call_options& call) {
  struct running final : pending::operation {
    explicit running(std::shared_ptr<started_run> r) : run(std::move(r)) {}
    bool done() override { return run->advance(false); }
    result<void> wait() override {
      advance_together(run->work->communicator(), run.get(), [&](bool may_block) { return run->advance(may_block); });
      return *std::move(run->over);
    }
    std::shared_ptr<started_run> run;
  };
  SHARDMESH_TRY(state_->begin(from, to, call));
  auto started = std::make_shared<started_run>(state_);
  remember(started);
  return pending(std::make_unique<running>(std::move(started)));
}

result<void> executor::run(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                           const call_options& call) {
  SHARDMESH_TRY(state_->begin(from, to, call));
  std::optional<result<void>> over;
  advance_together(state_->communicator(), nullptr, [&](bool may_block) {
    over = state_->advance_safely(may_block);
    return over.has_value();
  });
  return *std::move(over);
}

}  // namespace shardmesh
