// SPDX-License-Identifier: Apache-2.0
// Not exported: one `resume`: a step in the memory of some ranks is loaded into a state on all ranks.
module shardmesh.replicas:step_resume;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.comm;
import shardmesh.transfer;
import shardmesh.checkpoint;
import shardmesh.collective_checkpoint;
import :described_part;
import :kept_catalog;
import :kept_match;
import :memory_step;
import :memory_survey;
import :rank_round;
import :replicas_options;
import :step_replicas;

namespace shardmesh {

class step_resume {
 public:
  step_resume(std::span<const memory_step> steps, communicator_ref comm, const rank_load_options& options);

  // Loads the last step of which every box is left. Collective.
  result<resumed_step> run(const detail::replica_target& state) &&;

 private:
  // The memory of one transfer, and its two distributions.
  struct moves {
    std::vector<tensor_transfer> transfers;
    std::vector<std::string> keys;
    std::vector<const_tensor_binding> from;
    std::vector<tensor_binding> to;
  };
  result<void> choose();
  result<void> compare(const detail::replica_target& state);
  result<std::vector<std::byte>> note_of_wanted(const detail::replica_target& state);
  result<void> move();
  result<void> add_moves(const merged_entry& wanted, moves& to);
  result<distribution> source_of(std::size_t tensor, const_tensor_binding& memory) const;
  tensor_view memory_of(const part_holder& holder) const;
  result<void> finish_objects();

  std::span<const memory_step> steps_;
  const rank_load_options& options_;
  rank_round round_;
  resumed_step report_;
  surveyed_step chosen_;
  std::vector<const std::byte*> own_copies_;  // per chunk; null if this rank has no copy
  std::vector<std::size_t> first_chunks_;     // per tensor of the catalog
  kept_keys tensors_;                         // of the catalog
  local_state wanted_;                        // of this rank
  std::vector<load_request> parts_;           // of this rank, tensor by tensor
  std::vector<std::size_t> first_parts_;      // per tensor of `wanted_`
  detail::tied_destinations ties_;
  std::map<std::size_t, host_tensor> archives_;  // of this rank's objects, by index
  merged_parts all_;                             // the wanted entries of all ranks
};

}  // namespace shardmesh
