// SPDX-License-Identifier: Apache-2.0
// Not exported: the load of one rank, in the phases that all ranks have together. Bodies: `rank_load.cpp` gets the
// share and does the rank's own reads, `exchanged_parts.cpp` moves parts between the ranks, and `load.cpp` begins
// loads.
module shardmesh.collective_checkpoint:rank_load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :load;
import :load_planner;
import :load_share;
import :rank_requests;
import :rank_state;
import :round_share;

namespace shardmesh {

class rank_load {
 public:
  // All arguments must outlive the result. `reader`: null if it could not be opened on this rank.
  rank_load(checkpoint_reader* reader, local_state& wanted, communicator_ref comm, const rank_load_options& options);

  // Loads. `opened`: whether the reader could be opened; every rank gets the error.
  result<load_report> run(const result<void>& opened) &&;

 private:
  static error malformed_share();
  result<void> load_all(const result<void>& opened);
  result<void> get_share(const result<void>& opened);
  agreement_notes by_planner(function_ref<result<agreement_notes>()> planning);
  result<void> take_share(std::span<const std::byte> bytes);
  result<void> compare_ties();
  result<std::vector<std::byte>> read();
  load_options local_options();
  std::vector<load_request> own_reads();
  result<void> exchange();
  result<void> read_in_pieces();
  result<std::vector<round_share>> get_rounds();

  checkpoint_reader* reader_;
  local_state& wanted_;
  communicator_ref comm_;
  const rank_load_options& options_;
  load_options loading_;  // of this rank
  round_of_ranks round_;
  load_report report_;
  rank_requests requests_;
  std::optional<load_planner> planner_;  // on rank 0
  load_share share_;
  result<void> share_taken_;  // whether the share could be read
  // Keys that this rank gets partly from another rank, if `on_arrival` is set.
  std::vector<std::string> exchanged_;
};

}  // namespace shardmesh
