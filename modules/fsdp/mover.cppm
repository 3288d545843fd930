// SPDX-License-Identifier: Apache-2.0
// What saving costs, and the part of it that does not depend on the tensor type: agreement, transfers, copies.
export module shardmesh.fsdp:mover;

import shardmesh.std;
import shardmesh.sharding;
import :model;
import :planned;

export namespace shardmesh {

/// What making or taking a state dict took.
struct fsdp_profile {
  std::int64_t entries = 0;
  std::int64_t bytes_moved = 0;     // between all ranks; equals the lower bound
  std::int64_t sent_bytes = 0;      // by this rank
  std::int64_t received_bytes = 0;  // by this rank
  std::int64_t peak_bytes = 0;      // most bytes of messages alive on this rank
  double plan_seconds = 0;          // who holds and gets what
  double agree_seconds = 0;         // waiting for the others included
  double move_seconds = 0;
};

}  // namespace shardmesh

export namespace shardmesh::detail {

// Collective. Plans, agrees and runs; adds to the profile. `mine` is an error when this rank cannot take part (no
// memory for its result): every rank gets it then, as it gets one of the plan.
result<void> run_transfers(const result<void>& mine, std::vector<tensor_transfer> transfers,
                           std::vector<std::string> keys, std::span<const const_tensor_binding> from,
                           std::span<const tensor_binding> to, communicator_ref comm, const plan_options& options,
                           const call_options& call, fsdp_profile& profile);

// A unit's shard and group fit each other and the communicator.
result<void> check_unit_of(const fsdp_unit& unit, communicator_ref comm);

// Carries out planned entries, run by run. Collective where `comm` is given; without it only what needs no transfer.
class entry_mover {
 public:
  // Collective. `planned` may be an error of this rank: every rank gets it.
  static result<entry_mover> start(result<std::vector<planned_entry>> planned, std::optional<communicator_ref> comm,
                                   std::int64_t memory_bytes, const call_options& call);

  std::span<planned_entry> entries() { return planned_; }
  // The next entries of which no rank's parts take more than `memory_bytes` (at least one; 0: all), as [first, last).
  // An entry counts with its other names, which are copied from it.
  std::pair<std::size_t, std::size_t> next_run(std::size_t first, std::int64_t memory_bytes) const;
  // The entries that are other names of this one, ascending.
  std::span<const std::size_t> other_names(std::size_t entry) const { return other_names_[entry]; }
  // Collective. `results[i - first]` is the memory of this rank's part of entry i, if it has one; `mine` an error when
  // this rank has none for it. Other names are left to the caller. After an error nobody waits for this rank.
  result<void> move(std::size_t first, std::size_t last, std::span<const tensor_view> results,
                    const result<void>& mine);
  // Collective. The end: what a rank could not do with its last entries is heard by all.
  result<void> finish();
  // This rank cannot go on: nobody waits for it.
  void abort(const error& reason);

  const fsdp_profile& profile() const { return profile_; }

 private:
  // The most bytes of an entry that a rank gets: the same on every rank, so that they agree on the runs.
  static std::int64_t largest_part(const planned_entry& entry);

  std::vector<planned_entry> planned_;
  std::vector<std::vector<std::size_t>> other_names_;
  std::optional<communicator_ref> comm_;
  std::int64_t memory_bytes_ = 0;
  call_options call_;
  fsdp_profile profile_;
};

}  // namespace shardmesh::detail
