// SPDX-License-Identifier: Apache-2.0
// The plan of a save by many ranks: which rank writes which boxes and objects. The later phases are in rank_save.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.torch_file;
import :kept_plan;
import :rank_save;
import :rank_share;
import :save_conditions;

namespace shardmesh {

result<void> rank_save::plan(const const_local_state& held) {
  const detail::call_scope limits(round_.call);
  return guarded(comm_, [&]() -> result<void> {
    std::vector<std::byte> note;
    const auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(enter(save_phase::describe));
      SHARDMESH_TRY(check_held(held));
      SHARDMESH_TRY(make_archives(held));
      note = describe(held, described_);
      return {};
    });
    // Both begin with the same round, in which ranks with different formats learn that.
    if (is_planned_by_root(options_.format)) return plan_by_root(held, mine, std::move(note));
    SHARDMESH_TRY(const agreement_notes notes,
                  round_.settle(mine, std::move(note), save_conditions(destination_, options_, saving_)));
    return plan_on_every_rank(held, notes);
  });
}

result<void> rank_save::plan_by_root(const const_local_state& held, const result<void>& described,
                                     std::vector<std::byte> note) {
  SHARDMESH_TRY(const std::shared_ptr<const kept_plan> kept, agree_on_plan(held, described));
  if (kept)
    planned_ = guarded([&] { return use_plan(*kept, held); });
  else
    SHARDMESH_TRY(make_plan(held, std::move(note)));
  if (saving_.previous.empty()) return {};
  std::vector<std::byte> own;
  const auto mine = guarded([&]() -> result<void> {
    if (!planned_) return planned_;
    SHARDMESH_TRY(own, note_for_plan());
    return {};
  });
  SHARDMESH_TRY(const agreement_notes noted, round_.collect(mine, std::move(own)));
  planned_ = guarded([&] { return plan_format(noted); });
  return {};
}

result<std::shared_ptr<const kept_plan>> rank_save::agree_on_plan(const const_local_state& held,
                                                                  const result<void>& described) {
  const std::vector<agreement_record> conditions = save_conditions(destination_, options_, saving_);
  if (keeper_.is_none()) {
    SHARDMESH_TRY(round_.settle(described, {}, conditions));
    return std::shared_ptr<const kept_plan>();
  }
  std::vector<std::byte> proposal;
  const auto mine = guarded([&]() -> result<void> {
    if (!described) return described;
    plan_key_ = plan_key(held, described_, conditions, comm_);
    proposal = keeper_.propose(plan_key_, described_);
    return {};
  });
  SHARDMESH_TRY(const std::vector<std::byte> all,
                round_.settle_combined(mine, std::move(proposal), combine_proposals, conditions));
  return keeper_.settle(all);
}

result<void> rank_save::use_plan(const kept_plan& plan, const const_local_state& held) {
  work_ = plan.work;
  bind_views(work_, held);
  report_ = plan.report;
  return make_writer();
}

result<void> rank_save::make_plan(const const_local_state& held, std::vector<std::byte> note) {
  SHARDMESH_TRY(agreement_notes notes, round_.send_to_root(std::move(note)));
  SHARDMESH_TRY(const std::vector<std::byte> told, round_.hand_out(verdict_and_shares(held, std::move(notes))));
  detail::wire_reader in(told);
  SHARDMESH_TRY(read_verdict(in));
  planned_ = guarded([&] { return take_answer(in, held); });
  return {};
}

agreement_notes rank_save::verdict_and_shares(const const_local_state& held, agreement_notes notes) {
  if (comm_.rank() != 0) return {};
  std::vector<detail::wire_writer> shares(static_cast<std::size_t>(comm_.size()));
  const auto planned = guarded([&]() -> result<void> {
    SHARDMESH_TRY(assign_all(notes, held, std::span(shares).first(comm_.size() > 1 ? shares.size() : 0)));
    notes = {};
    detail::problem_list problems;
    for (error& problem : writer_->find_problems()) problems.add(std::move(problem));
    return std::move(problems).outcome();
  });
  const digest128 id = planned && !keeper_.is_none() ? new_plan_id() : digest128();
  agreement_notes made;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    detail::wire_writer told;
    write_verdict(told, planned);
    if (planned && !keeper_.is_none()) write_plan_id(told, id, object_weights_[rank]);
    if (planned) told.raw(shares[rank].written());
    made.push_back(std::move(told).take());
  }
  object_weights_.clear();
  return made;
}

// Rank 0 has its work already.
result<void> rank_save::take_answer(detail::wire_reader& in, const const_local_state& held) {
  kept_plan plan;
  if (!keeper_.is_none() && !read_plan_id(in, plan))
    return fail(errc::bad_format, "the plan that rank 0 made is malformed").with_rank(0);
  if (comm_.rank() != 0) {
    SHARDMESH_TRY(work_, take_share(in.rest(), held, described_, comm_.rank()));
    SHARDMESH_TRY(make_writer());
  }
  if (keeper_.is_none()) return {};
  plan.key = plan_key_;
  plan.work = work_;
  plan.report = report_;
  keeper_.keep(std::move(plan));
  return {};
}

result<void> rank_save::plan_on_every_rank(const const_local_state& held, const agreement_notes& notes) {
  SHARDMESH_TRY(assign_all(notes, held, {}));
  agreement_notes told(static_cast<std::size_t>(comm_.size()));
  if (writer_->needs_notes()) {
    std::vector<std::byte> own;
    const auto mine = guarded([&]() -> result<void> {
      SHARDMESH_TRY(own, note_for_plan());
      return {};
    });
    SHARDMESH_TRY(told, round_.settle(mine, std::move(own)));
  }
  return plan_format(told);
}

result<void> rank_save::assign_all(const agreement_notes& notes, const const_local_state& held,
                                   std::span<detail::wire_writer> shares) {
  SHARDMESH_TRY(merged_state all, merge_states(notes));
  // If ranks contradict each other, the other problems are consequences, and are not reported.
  SHARDMESH_TRY(std::move(all.problems).outcome());
  detail::problem_list problems;
  selection_result chosen = select_saved(all, options_.selection);
  for (error& problem : chosen.errors) problems.add(std::move(problem));
  for (std::string& note : chosen.notes) report_.notes.push_back(std::move(note));
  report_.excluded = static_cast<std::int64_t>(chosen.excluded);
  if (options_.skip_objects)
    report_.skipped_objects = static_cast<std::int64_t>(
        std::erase_if(chosen.kept, [&](const selected& one) { return one.index >= all.tensors.size(); }));
  SHARDMESH_TRY(std::move(problems).outcome());
  work_ = assign_writers(all, chosen.kept, held, comm_.rank(), options_.lowest_rank_objects, shares);
  if (!keeper_.is_none() && is_planned_by_root(options_.format)) {
    const std::span<const selected> compared = options_.lowest_rank_objects ? std::span<const selected>() : chosen.kept;
    object_weights_ = weigh_objects(all, compared, comm_.size());
  }
  SHARDMESH_TRY(std::move(work_.problems).outcome());
  return make_writer();
}

result<void> rank_save::make_writer() {
  SHARDMESH_TRY(check_previous(options_.format, saving_.previous));
  const rank_write_request request{
      destination_, comm_.rank(), comm_.size(), &work_, archives_, options_.max_shard_bytes, saving_.previous};
  writer_ = make_rank_writer(options_.format, request);
  if (writer_) return {};
  return fail(errc::unsupported, "many ranks cannot write this format together")
      .with_file(destination_.string())
      .with_hint("save as DCP and convert that");
}

result<std::vector<std::byte>> rank_save::note_for_plan() {
  if (!writer_->needs_notes()) return std::vector<std::byte>{};
  item_run_options run = run_options();
  run.progress = [this](std::int64_t) { interruption_.poll(); };  // the write reports the bytes
  return uncancelled(writer_->note_for_plan(run));
}

result<void> rank_save::plan_format(const agreement_notes& told) {
  SHARDMESH_TRY(std::vector<error> found, writer_->plan(told));
  detail::problem_list problems;
  for (error& problem : found) problems.add(std::move(problem));
  return std::move(problems).outcome();
}

result<void> rank_save::make_archives(const const_local_state& held) {
  for (const local_state_object& object : held.objects) {
    auto archive = torch_file::archive_of_object(object);
    if (!archive) return std::move(archive).error().with_key(dotted(object.where));
    described_.push_back(
        {object.where, xxh3(*archive), static_cast<std::int64_t>(archive->size()), torch_file::summary_of(object)});
    archives_.push_back(*std::move(archive));
  }
  return {};
}

}  // namespace shardmesh
