// SPDX-License-Identifier: Apache-2.0
// mpi_communicator: the ranks of an MPI communicator. Not here: how bytes travel (engine.hpp), launching (mpirun).
// No MPI header: a consumer compiles this interface without MPI's flags.
export module shardmesh.mpi:mpi_communicator;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::mpi {
class engine;
}

export namespace shardmesh {

/// How an mpi_communicator moves bytes. The defaults are right for all but tests and measurements.
struct mpi_options {
  /// Ranks of one machine read each other's buffers (Linux: process_vm_readv) where the system lets them: one copy.
  /// Otherwise, and between machines, messages go through staging memory in chunks.
  bool read_peer_memory = true;
  /// Largest message given to MPI, in bytes, 1 .. 1 GiB; the smallest of all ranks' values counts.
  std::int64_t chunk_bytes = 128 << 10;
};

/// A rank of an MPI communicator. Models `communicator`; a cheap handle that shares its state with its copies; every
/// member may be called from any thread, collectives from one at a time.
///
/// Messages move while a rank is in a call of this communicator or of a `pending` of it, except that a message to a
/// rank of the same machine needs its receiver only. A wait polls, at first eagerly, later sleeping up to 0.5 ms.
/// User memory is never given to MPI itself, which cannot take it back: so an error returns at once, however its peers
/// are. Poison (a deadline that passes, a cancelled call, `abort`, messages of different sizes on the two sides, a rank
/// of this machine that has ended or let go of its communicator while others wait for it, a failure of MPI, what an
/// error handler of MPI throws, want of memory) reaches every rank: each gets that same error from then on. Make a new
/// communicator to go on, if the ranks are all alive.
class mpi_communicator {
 public:
  /// The ranks of MPI_COMM_WORLD. Collective; blocks without a deadline. Initialises MPI (with MPI_THREAD_MULTIPLE)
  /// when nobody has; then the last communicator that goes finalises it, unless a rank seems to have died (MPI would
  /// wait for it for ever), and MPI cannot be started again.
  /// \errors errc::unsupported: MPI runs without MPI_THREAD_MULTIPLE, or was finalised; errc::invalid_argument:
  /// chunk_bytes out of range; errc::disagreement: a rank has another version; errc::communication: MPI failed.
  static result<mpi_communicator> world(const mpi_options& options = {});

  /// The ranks of the caller's intra-communicator, given as `MPI_Comm_c2f(comm)` (which is the same for every MPI and
  /// needs no MPI header here). It is duplicated, so it may be freed at once; MPI stays up until this communicator and
  /// its copies are gone. Collective over it; blocks without a deadline.
  /// \errors as `world`; errc::unsupported: MPI is not initialised; errc::invalid_argument: not an intra-communicator.
  static result<mpi_communicator> from_handle(std::int32_t fortran_handle, const mpi_options& options = {});

  std::int32_t rank() const;
  std::int32_t size() const;

  /// Collective; blocks. Every rank sends to every other: meant for control. Any length. errc::deadline_exceeded names
  /// the ranks that did not come, and the call in which each was heard last.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Does not block. errc::invalid_argument names the peer: this rank itself, out of range, named twice or with an
  /// empty message; errc::unsupported: a stream. Nothing is started then. The `pending` of a send is done when the
  /// receiver has the bytes; errors name the ranks that were waited for.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// As `collective_communicator`, made of messages (MPI's own cannot keep a deadline); do not block.
  result<pending> all_gather_into(std::span<const std::byte> send, std::span<std::byte> receive,
                                  const call_options& options);
  result<pending> all_to_all(std::span<const std::byte> send, std::span<std::byte> receive,
                             const call_options& options);
  result<pending> reduce_scatter(std::span<const std::byte> send, std::span<std::byte> receive, dtype type,
                                 reduce_op op, const call_options& options);
  result<pending> all_reduce(std::span<const std::byte> send, std::span<std::byte> receive, dtype type, reduce_op op,
                             const call_options& options);
  result<pending> broadcast(std::span<const std::byte> send, std::span<std::byte> receive, std::int32_t root,
                            const call_options& options);
  /// Poisons the communicator with this reason (and this rank, if it names none), unless it is poisoned already.
  void abort(const error& reason);
  /// As of `communicator_ref`; one set for all handles of this communicator on a rank.
  object_numbers numbers() const;

  /// The error that poisoned the communicator, as far as this rank knows; nothing while it is sound. Does not block.
  result<void> status() const;
  /// What this rank is doing and its latest calls, in one line: for people.
  std::string trace() const;
  /// Peers whose memory this rank reads in place.
  std::int32_t readable_peers() const;

 private:
  explicit mpi_communicator(std::shared_ptr<mpi::engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<mpi::engine> engine_;
};

static_assert(collective_communicator<mpi_communicator>);

}  // namespace shardmesh
