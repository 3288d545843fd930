// SPDX-License-Identifier: Apache-2.0
// Not exported: rank_save, one rank's part in the phases of a save by many ranks. The bodies of the plan are in
// rank_save_plan.cpp; the calls and the background thread are in save.
module shardmesh.collective_checkpoint:rank_save;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.transfer;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :interruption;
import :kept_plan;
import :rank_state;
import :rank_writer;
import :save;
import :save_assignment;
import :staged_copies;

namespace shardmesh {

class rank_save {
 public:
  rank_save(std::filesystem::path destination, communicator_ref comm, rank_save_options options);

  // Describes the state of this rank, and agrees with the others on the writer of each box. Collective. Every rank gets
  // the same errors.
  result<void> plan(const const_local_state& held);
  // Copies what this rank writes, so that the tensors may change. Collective.
  result<void> copy_sources();
  // Writes the files, and commits. Collective.
  result<save_report> write();

 private:
  // Uses the plan of the save before, or makes a new one with `make_plan`. An error of one rank's own part reaches the
  // others in the next round, in `copy_sources` or `stage`.
  result<void> plan_by_root(const const_local_state& held, const result<void>& described, std::vector<std::byte> note);
  // The first round. Returns the kept plan if all ranks can use theirs, otherwise null.
  result<std::shared_ptr<const kept_plan>> agree_on_plan(const const_local_state& held, const result<void>& described);
  result<void> use_plan(const kept_plan& plan, const const_local_state& held);
  // Rank 0 gets the descriptions, checks them, and chooses the writer of each box. Every rank gets its verdict and its
  // own share.
  result<void> make_plan(const const_local_state& held, std::vector<std::byte> note);
  // On rank 0, for each rank: the verdict about the descriptions, and the rank's share. On the others, nothing.
  agreement_notes verdict_and_shares(const const_local_state& held, agreement_notes notes);
  result<void> take_answer(detail::wire_reader& in, const const_local_state& held);
  // Every rank has all descriptions, and computes the same plan with the same problems.
  result<void> plan_on_every_rank(const const_local_state& held, const agreement_notes& notes);
  // Chooses the saved entries and their writers, from the descriptions of all ranks. Ranks with the same descriptions
  // find the same problems. `shares`: as for `assign_writers`.
  result<void> assign_all(const agreement_notes& notes, const const_local_state& held,
                          std::span<detail::wire_writer> shares);
  result<void> make_writer();
  // Returns this rank's note for the plan of the format; empty if the plan needs none.
  result<std::vector<std::byte>> note_for_plan();
  // Plans the place of everything.
  result<void> plan_format(const agreement_notes& told);
  result<void> make_archives(const const_local_state& held);

  // Rank 0 makes the folder and writes a token there. A rank that does not find the token has another file system.
  result<void> stage(std::optional<staged_output>& output);
  bool is_one_file() const;
  result<void> write_and_commit(staged_output& output);
  result<void> commit(staged_output& output, const agreement_notes& written, const agreement_notes& seen);
  // Rank 0: adds the facts of the whole save.
  void complete_report();

  result<void> enter(save_phase phase);
  item_run_options run_options();
  // If the work was stopped, returns an error that says whether the caller or the deadline did it.
  result<std::vector<std::byte>> uncancelled(result<std::vector<std::byte>> done);

  std::filesystem::path destination_;
  communicator_ref comm_;
  rank_save_options options_;
  save_options saving_;  // those of `options_`
  round_of_ranks round_;
  interruption interruption_;
  save_report report_;
  std::int32_t token_file_ = 0;  // rank 0's, in the staged folder
  save_assignment work_;
  result<void> planned_;  // of this rank's own part, until the next round
  plan_keeper keeper_;
  digest128 plan_key_;                          // if there is a cache
  std::vector<object_weights> object_weights_;  // on rank 0, if there is a cache: of each rank, until they are sent
  std::unique_ptr<rank_writer> writer_;
  std::vector<described_object> described_;
  std::vector<std::vector<std::byte>> archives_;  // of this rank's objects
  staged_copies copies_;                          // of what this rank writes
};

}  // namespace shardmesh
