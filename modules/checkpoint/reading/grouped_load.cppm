// SPDX-License-Identifier: Apache-2.0
// Not exported: a load in groups of tensors, for callers that wait for single tensors or compare checksums.
module shardmesh.checkpoint:grouped_load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint_core;
import :load;
import :planned_load;

namespace shardmesh {

// A check to run after each group; `is_loaded` is per tensor.
using request_check = function_ref<result<void>(const std::vector<bool>& is_loaded)>;

// Loads tensors group by group, in the order in which they are stored. The arguments must outlive it.
class grouped_load {
 public:
  // `targets`: of the planned tensors.
  grouped_load(checkpoint_reader& reader, const planned_load& planned, std::span<const memory_target> targets,
               const load_options& options, const item_run_options& run, request_check check);

  result<void> run(chunk_source& source);

 private:
  std::vector<std::size_t> in_stored_order() const;
  result<void> load(std::span<const std::size_t> group, chunk_source& source);
  // Compares every chunk of the group that a request needs with its checksum.
  result<void> compare(std::span<const std::size_t> group);

  checkpoint_reader& reader_;
  const planned_load& planned_;
  std::vector<std::vector<memory_target>> targets_;  // per tensor
  const load_options& options_;
  const item_run_options& run_;
  request_check check_;
  std::vector<bool> is_loaded_;  // per tensor
  storage_sums sums_;
};

}  // namespace shardmesh
