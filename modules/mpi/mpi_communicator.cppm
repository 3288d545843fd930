// SPDX-License-Identifier: Apache-2.0
// mpi_communicator: a rank of an MPI communicator. Messages are in engine; mpirun launches the processes.
// There is no MPI header here, so that users compile this interface without MPI's flags.
export module shardmesh.mpi:mpi_communicator;

import shardmesh.std;
import shardmesh.comm;

namespace shardmesh::mpi {
class engine;
}

export namespace shardmesh {

/// The options of an mpi_communicator. The defaults suit everything but tests and measurements.
struct mpi_options {
  /// Whether ranks on one machine read each other's buffers where the system lets them (Linux: process_vm_readv), with
  /// one copy. Otherwise, and between machines, messages go through staging memory in chunks.
  bool read_peer_memory = true;
  /// The largest message given to MPI, in bytes, 1 .. 1 GiB. The smallest value of all ranks applies.
  std::int64_t chunk_bytes = 128 << 10;
};

/// A rank of an MPI communicator. Models `collective_communicator`. A cheap handle that shares its state with its
/// copies. Every member is thread-safe, but only one thread at a time may be in a collective.
///
/// Messages move only while a rank is in a call of this communicator or of one of its `pending`s; a message to a rank
/// of the same machine needs only its receiver. A wait polls, at first eagerly, later with sleeps of up to 0.5 ms.
/// MPI itself never gets user memory, because MPI cannot revoke an operation. Errors therefore return at once, whatever
/// the state of the peers.
///
/// The communicator is poisoned by a missed deadline, a cancelled call, `abort`, a size mismatch between sender and
/// receiver, a failure of MPI, an exception from an MPI error handler, and lack of memory. A rank of this machine that
/// ends, or destroys its communicator, while others wait for it also poisons the communicator. From then on every rank
/// gets that same error. To continue, make a new communicator, if all ranks are alive.
class mpi_communicator {
 public:
  /// Makes a communicator of the ranks of MPI_COMM_WORLD. Collective; blocks without a deadline. If MPI is not
  /// initialised, this call initialises it with MPI_THREAD_MULTIPLE, and destroying the last communicator finalises it,
  /// for good. It is not finalised when a rank may have died, because MPI would wait for that rank for ever.
  /// \errors errc::unsupported: MPI runs without MPI_THREAD_MULTIPLE, or was finalised; errc::invalid_argument:
  /// chunk_bytes out of range; errc::disagreement: a rank has another version; errc::communication: MPI failed.
  static result<mpi_communicator> world(const mpi_options& options = {});

  /// Makes a communicator of the ranks of the caller's intra-communicator, given as `MPI_Comm_c2f(comm)`: this handle
  /// has the same type in every MPI and needs no MPI header here. The communicator is duplicated, so the caller may
  /// free it at once. MPI must stay initialised until this object and its copies are destroyed. Collective over the
  /// intra-communicator; blocks without a deadline.
  /// \errors as `world`; errc::unsupported: MPI is not initialised; errc::invalid_argument: not an intra-communicator.
  static result<mpi_communicator> from_handle(std::int32_t fortran_handle, const mpi_options& options = {});

  std::int32_t rank() const;
  std::int32_t size() const;

  /// Gathers bytes of any length from all ranks. Collective; blocks. Every rank sends to every other rank, so it is
  /// meant for control data. errc::deadline_exceeded names the ranks whose bytes did not arrive, and the last known
  /// call of each.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  /// Starts an exchange. Does not block. errc::invalid_argument for a peer that is this rank, out of range, repeated,
  /// or given an empty message (names it); errc::unsupported for a call with a stream. Nothing is started then. The
  /// `pending` of a send is done when the receiver has the bytes; errors name the ranks that this rank waited for.
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  /// The collectives of `collective_communicator`, made of messages, because MPI's own cannot keep a deadline; they do
  /// not block.
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
  /// Poisons the communicator with this reason, and adds this rank if the reason names none. Does nothing when the
  /// communicator is poisoned already.
  void abort(const error& reason);
  /// Returns the rank's live numbers (see `communicator_ref::numbers`); all handles of this communicator on a rank
  /// share one set.
  object_numbers numbers() const;

  /// Returns the error that poisoned the communicator, as far as this rank knows, or success. Does not block.
  result<void> status() const;
  /// Describes what this rank is doing and its latest calls, in one line, for people to read.
  std::string trace() const;
  /// Returns the number of peers whose memory this rank can read in place.
  std::int32_t readable_peers() const;

 private:
  explicit mpi_communicator(std::shared_ptr<mpi::engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<mpi::engine> engine_;
};

static_assert(collective_communicator<mpi_communicator>);

}  // namespace shardmesh
