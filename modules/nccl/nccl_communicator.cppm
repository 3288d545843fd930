// SPDX-License-Identifier: Apache-2.0
// nccl_communicator: ranks with a GPU each, whose memory NCCL moves. Not here: how calls are launched and watched
// (engine), control messages (another communicator's).
export module shardmesh.nccl:nccl_communicator;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;

namespace shardmesh::nccl {
class engine;
}

export namespace shardmesh {

/// Where the libraries are, and how careful the communicator is. Empty paths: as `nccl::library` and `cuda::runtime`
/// find them.
struct nccl_options {
  std::string nccl{};
  std::string cudart{};
  /// Addresses that are not of this device's memory are refused: NCCL's kernels would break the whole process's GPU.
  bool check_memory = true;
  /// Calls without a stream begin after what the device's default stream has by then.
  bool follow_default_stream = true;
  /// Deadline of calls that have none: how long a rank waits for others that may be gone. Zero: for ever.
  std::chrono::milliseconds patience{600'000};
};

/// Memory that NCCL was told of, so that it is read and written in place where the network can. Move-only; the memory
/// outlives it.
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

/// True when NCCL combines elements of this dtype so. Not: avg of integers, bit-wise operations, bool, 16-bit integers,
/// floats of fewer than 16 bits, and anything but sum and avg of complex numbers.
bool nccl_reduces(dtype type, reduce_op op);

/// A rank of a NCCL communicator. Models `collective_communicator`; a cheap handle that shares its state with its
/// copies; every member may be called from any thread.
///
/// Data lies in the memory of this rank's device. Messages have no tags: all ranks start the same exchanges and
/// collectives in the same order (`is_ordered`), and both sides of a message give the same size; who does not waits
/// until the deadline. Runs that overlap freely take a communicator each (`duplicate`).
///
/// Without a stream, a call begins when what the caller has done before is done (what is enqueued on the device's
/// default stream too), and `wait` returns when the memory is whole. With a stream, a call is put on it; `wait` returns
/// when that is so, does not wait for the device, and must have returned before more is enqueued there; memory stays
/// until the stream has passed the call. Deadlines of such calls are kept by a thread of the communicator; their errors
/// come out of `done` and of later calls.
///
/// Poison (a deadline that passes, a cancelled call, `abort`, an error of NCCL or of the device) aborts NCCL's
/// communicator, which ends what runs on streams, and reaches every rank through the control communicator, which is
/// poisoned with it: each gets that same error from then on.
///
/// Ranks part together: the destructor of a rank's last handle (and of what was started) waits for the others' up to
/// five seconds, then aborts.
class nccl_communicator {
 public:
  /// Collective over `control`, whose ranks and order these are and which outlives this and all that is split from it;
  /// blocks. Ranks are threads of one process or processes. The device is this rank's for good.
  /// \errors of all ranks the same: errc::unsupported (no CUDA, no device, no NCCL of at least 2.27), naming rank and
  ///         device, with the library's text; errc::disagreement (NCCL's versions); those of `control`. When NCCL fails
  ///         later than that, `control` is poisoned: errc::communication, errc::deadline_exceeded
  static result<nccl_communicator> make(communicator_ref control, device where, const nccl_options& options = {},
                                        const call_options& call = {});

  std::int32_t rank() const;
  std::int32_t size() const;
  /// This rank's device, with its index.
  device memory() const;
  bool is_ordered() const { return true; }

  /// Bytes of the host, over `control`. Collective; blocks.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// One group of sends and receives. errc::invalid_argument names the peer: this rank itself, out of range, named
  /// twice or with an empty message; errc::unsupported: memory that is not on `memory()`. Nothing is started then.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// As `collective_communicator`, by NCCL's own. errc::invalid_argument (sizes that do not fit the group or the
  /// dtype), errc::unsupported (a reduction for which `nccl_reduces` is false, naming dtype and operation; memory that
  /// is not on `memory()`), each naming the rank. Of no bytes: done at once.
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options);
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options);
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options);
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options);
  /// errc::invalid_argument also for a root that there is not.
  result<pending> broadcast(std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options);
  /// Poisons the communicator with this reason (and this rank, if it names none), unless it is poisoned already.
  void abort(const error& reason);

  /// Communicators of the ranks that give the same `group`, in the order of `order` (ties: of ranks). Collective over
  /// all ranks; blocks. A rank whose group is negative gets none. What poisons one poisons all that share a `control`.
  /// \errors those of `make`
  result<std::optional<nccl_communicator>> split(std::int32_t group, std::int32_t order, const call_options& call = {});
  /// This rank's group of those that `group_of` makes of all ranks (see `communicator_ref::groups`), kept as long as
  /// this communicator: plans use it whose tensors are gathered, sent to all or summed along one dimension of a mesh.
  /// Collective over all ranks; blocks. \errors errc::invalid_argument (not one number from 0 for each rank); those of
  /// `make`
  result<nccl_communicator*> groups(std::span<const std::int32_t> group_of, const call_options& call = {});
  /// Another communicator of the same ranks. Collective; blocks.
  result<nccl_communicator> duplicate(const call_options& call = {});
  /// Tells NCCL of memory that will be used often. \errors errc::communication with NCCL's text
  result<nccl_registration> register_memory(std::span<std::byte> memory);

  /// The error that poisoned the communicator, as far as this rank knows; nothing while it is sound. Does not block.
  result<void> status() const;
  /// As of `communicator_ref`; one set for all handles of this communicator on a rank.
  object_numbers numbers() const;

 private:
  explicit nccl_communicator(std::shared_ptr<nccl::engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<nccl::engine> engine_;
};

static_assert(collective_communicator<nccl_communicator>);

}  // namespace shardmesh
