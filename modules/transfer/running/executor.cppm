// SPDX-License-Identifier: Apache-2.0
// executor: carries a transfer plan out over a communicator, between tensors in the memory of its ranks. Not here: who
// sends what (plan), items (run_items).
export module shardmesh.transfer:executor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.comm;
import :binding;
import :plan;

export namespace shardmesh {

/// When ranks make sure that they do the same thing.
enum class check_policy : std::uint8_t {
  once,       // when the executor is made
  every_run,  // also before each run, with its bindings: a rank's mistake then does not poison the communicator
};

/// How an `executor` runs its plan. `check` is the same on every rank (errc::disagreement).
struct run_options {
  check_policy check = check_policy::once;
  std::function<void(std::int64_t bytes)> progress{};  // called with the bytes that this rank just got or copied
  bool in_place = true;  // ranks that share memory read each other's; false: always messages
};

/// Carries out one plan any number of times. What is contiguous on a side moves straight from and into its memory;
/// other pieces are packed into and unpacked from messages, or, when the ranks share memory, copied once from the
/// sender's tensor into the receiver's. Sums are made in ascending term order, in float32 or wider, and rounded once.
/// The plan's memory budget is kept: what does not fit at once moves in rounds, one after the other. No byte outside
/// bound fragments is written.
///
/// Move-only. Refers to the communicator, which outlives it and its runs. After an error in a run the communicator is
/// poisoned (except as `check_policy::every_run` says) and destinations hold unspecified values.
class executor {
 public:
  /// Collective; blocks. One all_gather when the ranks agree.
  /// \param keys  names of the transfers in errors; empty, or one each
  /// \errors errc::disagreement naming the transfers that differ and the ranks; errc::invalid_argument (number of keys,
  ///         a distribution over ranks that the group lacks, each naming key and rank); errc::no_memory (a rank cannot
  ///         keep the memory budget, however finely the exchange is cut); errc::unsupported (items; a reduction that is
  ///         not defined on a dtype; 1022 executors live on the communicator already). Every rank gets the same one. Those of the communicator.
  /// Cost: O(this rank's copies).
  static result<executor> make(transfer_plan plan, communicator_ref comm, std::vector<std::string> keys = {},
                               const run_options& options = {}, const call_options& call = {});

  /// The same; a rank that has no plan tells the others why, and every rank gets the error of the lowest such rank.
  static result<executor> make(result<transfer_plan> plan, communicator_ref comm, std::vector<std::string> keys = {},
                               const run_options& options = {}, const call_options& call = {});

  executor(executor&&) noexcept = default;
  executor& operator=(executor&&) noexcept = default;
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;

  /// Collective. Starts a run and returns; it goes on in `done` and `wait` of what is returned. One run of an executor
  /// at a time; runs of different executors may overlap, and ranks may wait for them in any order: a rank that blocks
  /// in `wait` or `run` also advances the other runs that the same thread started on this communicator. Memory lives
  /// until `wait`.
  /// \param from, to  one binding per transfer, of this rank's slots
  /// \errors before a byte moves, naming key, rank and box: errc::invalid_argument (number of bindings, a missing
  ///         slot, a source and a destination that share memory: only a slot of which nothing changes may),
  ///         errc::shape_mismatch (a view does not hold its fragments), errc::dtype_mismatch, errc::unsupported
  ///         (memory that no backend reaches). The other ranks get the same error. errc::cancelled,
  ///         errc::deadline_exceeded and others from the communicator, here or from `wait`.
  /// Cost: with the same bindings as the last time no checks; `run` allocates nothing then (but what the communicator
  /// allocates).
  result<pending> start(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                        const call_options& call = {});

  /// Collective; blocks. `start` and `wait`.
  result<void> run(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                   const call_options& call = {});

  const transfer_plan& plan() const;
  /// Bytes of a run's messages on this rank, without those of collectives.
  std::int64_t sent_bytes() const;
  std::int64_t received_bytes() const;
  /// Bytes that a run moves between all ranks, as planned: each rank counted its own when the executor was made.
  std::int64_t moved_bytes() const;
  /// How many rounds the exchange is cut into, on every rank alike: as many as the rank with the tightest budget needs.
  std::int64_t rounds() const;
  /// Most bytes that runs take on this rank beside its tensors: of messages when every piece must be packed, and of
  /// staging. At most the budget of `plan_options::memory_bytes`.
  std::int64_t peak_bytes() const;
  /// What runs have taken so far, and keep for the next.
  std::int64_t scratch_bytes() const;

  struct state;

 private:
  explicit executor(std::shared_ptr<state> s) : state_(std::move(s)) {}
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh
