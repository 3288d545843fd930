// SPDX-License-Identifier: Apache-2.0
// Not exported: the planning of a load, which rank 0 does for all ranks: from their requests to each rank's share. The
// ranks' own work is in load.
module shardmesh.collective_checkpoint:load_planner;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import :load;
import :load_share;

namespace shardmesh {

// Appends the flags of a load to a rank's description: the rank has tied tensors; it wants checksums compared.
void add_flags(std::vector<std::byte>& description, bool has_ties, bool check);

class load_planner {
 public:
  // The arguments must outlive the planner. `ranks`: the size of the communicator.
  load_planner(const checkpoint_reader& reader, const rank_load_options& options, std::int32_t ranks)
      : reader_(reader), options_(options), ranks_(ranks) {}

  // Returns the share of each rank. `descriptions`: from every rank, with flags.
  // \errors those of `match_requests`; errc::bad_format naming the rank
  result<agreement_notes> shares(agreement_notes descriptions);

  // Returns each rank's part of all rounds of pieces. `forms`: the notes about unclear chunks; empty if there are none.
  // \errors errc::bad_format naming the rank
  // Cost: that of `plan_rounds` and `encode_round_shares`.
  result<agreement_notes> round_shares(const agreement_notes& forms) const;

 private:
  std::int64_t staging_bytes() const;

  const checkpoint_reader& reader_;
  const rank_load_options& options_;
  std::int32_t ranks_;
  load_plan plan_;
};

}  // namespace shardmesh
