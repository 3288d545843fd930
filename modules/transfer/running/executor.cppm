// SPDX-License-Identifier: Apache-2.0
// The executor: carries out a transfer plan over a communicator, between tensors in the memory of its ranks. The
// planner is in `plan`; items are in `run_items`.
export module shardmesh.transfer:executor;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.comm;
import :binding;
import :plan;

export namespace shardmesh {

/// The times at which the ranks check that they agree on their work.
enum class check_policy : std::uint8_t {
  once,       // when the executor is made
  every_run,  // also before each run, with its bindings: a rank's mistake then does not poison the communicator
};

/// The options of an `executor`. `check` and `whole_plan` are the same on every rank (otherwise errc::disagreement).
struct run_options {
  check_policy check = check_policy::once;
  std::function<void(std::int64_t bytes)> progress{};  // called with the bytes just received or copied
  bool in_place = true;  // ranks that share memory read each other's tensors; false: always messages
  /// False if each rank plans its own part alone, so that no rank needs all fragments. Every rank then passes the same
  /// transfers, in the same order, but lists only some fragments: its own, the source fragments that hold what its
  /// destination wants, and the destination fragments of other ranks that its source fills. Each destination fragment
  /// lies within one source fragment, and no two source fragments overlap. The ranks compare shapes, dtypes, and
  /// options, but not the fragments, and no transfer becomes a collective.
  bool whole_plan = true;
};

/// Carries out one plan any number of times. Pieces that are contiguous on a side move straight out of or into its
/// memory. Other pieces are packed into messages and unpacked from them. If ranks share memory, a piece is instead
/// copied once, from the sender's tensor into the receiver's.
/// Sums are made in ascending term order, in float32 or wider, and rounded once. The plan's memory budget is kept: an
/// exchange that exceeds it moves in successive rounds. A run writes no byte outside bound fragments.
///
/// Move-only. Refers to the communicator, which must outlive the executor and its runs. An error in a run poisons the
/// communicator (except with `check_policy::every_run`, as described there) and leaves unspecified values in the
/// destinations.
class executor {
 public:
  /// Makes an executor. Collective; blocks. If the ranks agree, the cost is that of one `agree`.
  /// \param keys  names of the transfers in errors; empty, or one per transfer
  /// \errors errc::disagreement naming the differing transfers and the ranks; errc::invalid_argument (wrong number of
  ///         keys; a distribution over ranks that the group lacks, naming key and rank); errc::no_memory (a rank cannot
  ///         keep its memory budget, however finely the exchange is cut); errc::unsupported (items; a reduction that is
  ///         not defined on a dtype; 1022 executors already live on the communicator); those of the communicator. Every
  ///         rank gets the same error.
  /// Cost: O(this rank's copies).
  static result<executor> make(transfer_plan plan, communicator_ref comm, std::vector<std::string> keys = {},
                               const run_options& options = {}, const call_options& call = {});

  /// Makes an executor from a plan that may have failed. A rank without a plan reports its error, and every rank gets
  /// the error of the lowest such rank.
  static result<executor> make(result<transfer_plan> plan, communicator_ref comm, std::vector<std::string> keys = {},
                               const run_options& options = {}, const call_options& call = {});

  executor(executor&&) noexcept = default;
  executor& operator=(executor&&) noexcept = default;
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;

  /// Starts a run and returns; `done` and `wait` of the result advance it. Collective. An executor has one run at a
  /// time. Runs of different executors may overlap, and ranks may wait for them in any order: a rank that blocks in
  /// `wait` or `run` also advances the other runs that its thread started on this communicator. The bound memory must
  /// live until `wait` returns.
  /// \param from, to  one binding per transfer, of this rank's slots
  /// \errors before a byte moves, naming key, rank, and box: errc::invalid_argument (wrong number of bindings; a
  ///         missing slot; a source and a destination that share memory, unless nothing in the destination slot
  ///         changes), errc::shape_mismatch (a view does not hold its fragments), errc::dtype_mismatch, errc::unaligned
  ///         (rows of a sub-byte type that do not begin at byte boundaries), errc::unsupported (memory that no backend
  ///         reaches; a destination with one place for several elements). The other ranks get the same error. From here
  ///         or from `wait`: errc::cancelled, errc::deadline_exceeded, and others from the communicator.
  /// Cost: no checks if the bindings are those of the last run; `run` then allocates nothing, apart from the
  /// communicator's allocations.
  result<pending> start(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                        const call_options& call = {});

  /// Starts a run and waits for it. Collective; blocks.
  result<void> run(std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                   const call_options& call = {});

  const transfer_plan& plan() const;
  /// Bytes of a run's messages on this rank, without collectives.
  std::int64_t sent_bytes() const;
  std::int64_t received_bytes() const;
  /// Bytes that a run moves between all ranks, as planned: the sum of the ranks' counts at `make`.
  std::int64_t moved_bytes() const;
  /// The number of rounds of the exchange, the same on every rank: as many as the rank with the tightest budget needs.
  std::int64_t rounds() const;
  /// The most bytes that a run takes on this rank in addition to its tensors: staging, and messages if every piece must
  /// be packed. At most the budget of `plan_options::memory_bytes`.
  std::int64_t peak_bytes() const;
  /// Scratch memory that runs have taken so far; it is kept for the next run.
  std::int64_t scratch_bytes() const;

  struct state;

 private:
  explicit executor(std::shared_ptr<state> s) : state_(std::move(s)) {}
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh
