// SPDX-License-Identifier: Apache-2.0
// nccl_communicator: ranks with one GPU each, between which NCCL moves device memory. Calls are launched and watched in
// engine; another communicator carries the control messages.
export module shardmesh.nccl:nccl_communicator;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh::nccl {
class engine;
}

export namespace shardmesh {

/// The options of an nccl_communicator: the libraries' paths, checks, and patience. With empty paths, `nccl::library`
/// and `cuda::runtime` find the libraries.
struct nccl_options {
  std::string nccl{};
  std::string cudart{};
  /// Whether addresses outside this device's memory are refused. On such addresses, NCCL's kernels would make the GPU
  /// unusable for the whole process.
  bool check_memory = true;
  /// Whether a call without a stream begins after the work already enqueued on the device's default stream.
  bool follow_default_stream = true;
  /// The deadline of a call without one: how long a rank waits for others that may be gone. Zero: for ever.
  std::chrono::milliseconds patience{600'000};
};

/// Memory registered with NCCL, which then reads and writes it in place where the network supports that. Move-only; the
/// memory must outlive the registration.
class nccl_registration {
 public:
  nccl_registration() = default;
  nccl_registration(nccl_registration&& other) noexcept { swap(other); }
  nccl_registration& operator=(nccl_registration&& other) noexcept {
    nccl_registration taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~nccl_registration();

 private:
  friend class nccl_communicator;
  void swap(nccl_registration& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(handle_, other.handle_);
  }
  std::shared_ptr<nccl::engine> engine_;
  void* handle_ = nullptr;
};

/// Returns whether NCCL supports this reduction of this dtype. It does not support avg of integers, bit-wise
/// operations, bool, 16-bit integers, floats of fewer than 16 bits, or any reduction of complex numbers other than sum
/// and avg.
bool nccl_reduces(dtype type, reduce_op op);

/// A rank of an NCCL communicator. Models `collective_communicator`. A cheap handle that shares its state with its
/// copies; every member is thread-safe.
///
/// Data is in the memory of this rank's device. Messages have no tags: all ranks must start the same exchanges and
/// collectives in the same order (`is_ordered`), and both sides of a message must pass the same size. Otherwise ranks
/// wait until the deadline. Runs that may overlap need a communicator each (`duplicate`).
///
/// Without a stream, a call begins after all earlier work of the caller, including the work on the device's default
/// stream. `wait` returns when the received bytes are complete. With a stream, the call is enqueued there. `wait`
/// returns once it is enqueued, without waiting for the device; enqueue further work only after that. The memory must
/// live until the stream has passed the call. A thread of the communicator enforces the deadlines of such calls. `done`
/// and later calls notice their failures, and later calls return the error.
///
/// The communicator is poisoned by a missed deadline, a cancelled call, `abort`, and an error of NCCL or of the device.
/// Poison aborts NCCL's communicator, which ends its work on streams. It also poisons the control communicator, which
/// passes it to every rank: from then on every rank gets that same error.
///
/// Ranks finish together: when the last of a rank's handles and `pending`s is destroyed, the destructor waits up to
/// five seconds for the other ranks to do the same, then aborts.
class nccl_communicator {
 public:
  /// Makes a communicator of the ranks of `control`, in their order. Collective over `control`; blocks. `control` must
  /// outlive this communicator and all that are split from it. Ranks are threads of one process, or processes. The
  /// device of this rank never changes.
  /// \errors the same on all ranks: errc::unsupported (no CUDA, no device, no NCCL of at least 2.27), naming rank and
  ///         device, with the library's text; errc::disagreement (NCCL's versions); the errors of `control`. A later
  ///         failure of NCCL poisons `control`: errc::communication, errc::deadline_exceeded
  static result<nccl_communicator> make(communicator_ref control, device where, const nccl_options& options = {},
                                        const call_options& call = {});

  std::int32_t rank() const;
  std::int32_t size() const;
  /// Returns this rank's device, with its index.
  device memory() const;
  bool is_ordered() const { return true; }

  /// Gathers bytes in host memory from all ranks, over `control`. Collective; blocks.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Starts an exchange, as one NCCL group of sends and receives. errc::invalid_argument for a peer that is this rank,
  /// out of range, repeated, or given an empty message (names it); errc::unsupported for memory that is not on
  /// `memory()`. Nothing is started then.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// The collectives of `collective_communicator`, done by NCCL's own. errc::invalid_argument (sizes that do not fit
  /// the group or the dtype), errc::unsupported (a reduction for which `nccl_reduces` is false, naming dtype and
  /// operation; memory that is not on `memory()`), each naming the rank. A collective without bytes is done at once.
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options);
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options);
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options);
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options);
  /// errc::invalid_argument also for a root outside the group.
  result<pending> broadcast(std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options);
  /// Poisons the communicator with this reason, and adds this rank if the reason names none. Does nothing when the
  /// communicator is poisoned already.
  void abort(const error& reason);

  /// Splits the ranks into communicators: one for the ranks with equal `group`, numbered by `order` (ties: by rank). A
  /// rank with a negative group gets none. Collective over all ranks; blocks. Poisoning one communicator poisons all
  /// that share a `control`.
  /// \errors the errors of `make`
  result<std::optional<nccl_communicator>> split(std::int32_t group, std::int32_t order, const call_options& call = {});
  /// Splits the ranks by `group_of` and returns this rank's group (see `communicator_ref::groups`), which lives as long
  /// as this communicator. For plans that gather, exchange, or reduce tensors along one mesh dimension. Collective over
  /// all ranks; blocks.
  /// \errors errc::invalid_argument (not one number from 0 for each rank); the errors of `make`
  result<nccl_communicator*> groups(std::span<const std::int32_t> group_of, const call_options& call = {});
  /// Makes another communicator of the same ranks. Collective; blocks.
  result<nccl_communicator> duplicate(const call_options& call = {});
  /// Registers memory that will be used often. \errors errc::communication with NCCL's text
  result<nccl_registration> register_memory(std::span<std::byte> memory);

  /// Returns the error that poisoned the communicator, as far as this rank knows, or success. Does not block.
  result<void> status() const;
  /// Returns the rank's live numbers (see `communicator_ref::numbers`); all handles of this communicator on a rank
  /// share one set.
  object_numbers numbers() const;

 private:
  explicit nccl_communicator(std::shared_ptr<nccl::engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<nccl::engine> engine_;
};

static_assert(collective_communicator<nccl_communicator>);

}  // namespace shardmesh
