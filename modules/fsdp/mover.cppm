// SPDX-License-Identifier: Apache-2.0
// The measured cost of state dicts, and the parts of saving that do not depend on the tensor type: agreement,
// transfers, and copies.
export module shardmesh.fsdp:mover;

import shardmesh.std;
import shardmesh.sharding;
import :model;
import :planned;

export namespace shardmesh {

/// The measured cost of making or loading a state dict.
struct fsdp_profile {
  std::int64_t entries = 0;
  std::int64_t bytes_moved = 0;     // between all ranks; equals the lower bound
  std::int64_t sent_bytes = 0;      // by this rank
  std::int64_t received_bytes = 0;  // by this rank
  std::int64_t peak_bytes = 0;      // peak size of the messages alive on this rank
  double plan_seconds = 0;          // for planning the transfers
  double agree_seconds = 0;         // for agreement, including the wait for other ranks
  double move_seconds = 0;
};

}  // namespace shardmesh

export namespace shardmesh::detail {

// Transfers, their names in errors, and this rank's memory for each.
struct bound_transfers {
  std::vector<tensor_transfer> transfers;
  std::vector<std::string> keys;
  std::vector<const_tensor_binding> from;
  std::vector<tensor_binding> to;
};

// Collective. Plans, agrees, and runs; adds to the profile. `mine` is an error when this rank cannot take part (no
// memory for its result). Every rank then gets that error, as it gets any error of the plan.
result<void> run_transfers(const result<void>& mine, bound_transfers work, communicator_ref comm,
                           const plan_options& options, const call_options& call, fsdp_profile& profile);

// Checks that a unit's shard and group fit each other and the communicator.
result<void> check_unit_of(const fsdp_unit& unit, communicator_ref comm);

// Carries out planned entries, run by run (a run is a range of entries). Collective if `comm` is given; otherwise no
// entry may need a transfer.
class entry_mover {
 public:
  // Collective. `planned` may be an error of this rank; every rank then gets that error.
  static result<entry_mover> start(result<std::vector<planned_entry>> planned, std::optional<communicator_ref> comm,
                                   std::int64_t memory_bytes, const call_options& call);

  std::span<planned_entry> entries() { return planned_; }
  // The next run of entries, as [first, last). In a run, no rank's parts exceed `memory_bytes`, but a run has at least
  // one entry; 0: all entries. An entry counts together with its other names, which are copied from it.
  std::pair<std::size_t, std::size_t> next_run(std::size_t first, std::int64_t memory_bytes) const;
  // The entries that are other names of this one, ascending.
  std::span<const std::size_t> other_names(std::size_t entry) const { return other_names_[entry]; }
  // Collective. `results[i - first]` is the memory for this rank's part of entry i, if it has one. `mine` is an error
  // when this rank has no such memory. The caller copies to other names. After an error, no rank waits for this one.
  result<void> move(std::size_t first, std::size_t last, std::span<const tensor_view> results,
                    const result<void>& mine);
  // Collective. Waits for all ranks, so that each learns whether another failed with its last entries.
  result<void> finish();
  // Notifies the other ranks that this one cannot continue, so that none waits for it.
  void abort(const error& reason);

  const fsdp_profile& profile() const { return profile_; }

 private:
  // The size of the largest part of an entry that any rank gets, in bytes. It is the same on every rank, so that all
  // ranks agree on the runs.
  static std::int64_t largest_part(const planned_entry& entry);

  std::vector<planned_entry> planned_;
  std::vector<std::vector<std::size_t>> other_names_;
  std::optional<communicator_ref> comm_;
  std::int64_t memory_bytes_ = 0;
  call_options call_;
  fsdp_profile profile_;
};

}  // namespace shardmesh::detail
