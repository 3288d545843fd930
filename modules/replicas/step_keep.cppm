// SPDX-License-Identifier: Apache-2.0
// Not exported: one `keep`. Its first half copies this rank's boxes; its second half, which may run in the background,
// sends them to the ranks that keep copies.
module shardmesh.replicas:step_keep;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import :copy_placement;
import :copy_sending;
import :described_part;
import :kept_catalog;
import :memory_step;
import :rank_round;
import :replicas_options;

namespace shardmesh {

class step_keep {
 public:
  // `steps` holds the steps of this rank, and receives the new one. The keep refers to it until it has ended.
  step_keep(std::vector<memory_step>& steps, communicator_ref comm, const replicas_options& options,
            const keep_options& how);

  // Describes this rank's part, which `make` returns, chooses the keepers of each box, and copies this rank's boxes.
  // Collective; the same outcome on every rank. If an earlier keep ended on some ranks only, the ranks first choose
  // which step stays. Apart from that, `steps` does not change.
  result<void> prepare(std::int64_t step, function_ref<result<const_local_state>()> make);

  // Sends the copies, and compares the received ones with their digests. Collective. On success, the new step is the
  // only one. After an error, `steps` has the one before, and perhaps the new one as well.
  result<keep_report> finish();

 private:
  result<merged_parts> describe(std::int64_t step, function_ref<result<const_local_state>()> make);
  result<std::vector<std::byte>> note_of_part(std::int64_t step, function_ref<result<const_local_state>()> make);
  result<void> choose_step_before();
  result<void> copy_own(const merged_parts& all);
  result<std::vector<std::byte>> copy_and_digest(const merged_parts& all);
  const_tensor_view own_box(const merged_box& where) const;
  result<void> set_digests(const merged_parts& all, const agreement_notes& notes);

  std::vector<memory_step>& steps_;
  replicas_options options_;
  keep_options how_;
  rank_round round_;
  const_local_state held_;                        // of this rank; valid in `prepare` only
  std::vector<std::vector<std::byte>> archives_;  // of its objects
  std::vector<box_keepers> keepers_;              // per chunk
  std::vector<chunk_route> routes_;               // per chunk
  bool has_two_steps_ = false;                    // on any rank: an earlier keep ended on some ranks only
  kept_catalog catalog_;
  memory_step made_;
  keep_report report_;
};

}  // namespace shardmesh
