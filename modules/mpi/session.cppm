// SPDX-License-Identifier: Apache-2.0
// session: the lifetime of MPI in this process (initialising, finalising), and the translation of MPI's error codes
// into errors.
module;
#include "includes.hpp"
module shardmesh.mpi:session;

import shardmesh.comm;

namespace shardmesh::mpi {

/// Turns an MPI code into success or errc::communication: "cannot duplicate a communicator: MPI_ERR_COMM: ...".
result<void> check(int code, std::string_view action);
/// Makes an MPI call and checks its code. A program's MPI error handler may throw through the call; the exception also
/// becomes an errc::communication, with the exception's text.
result<void> called(function_ref<int()> call, std::string_view action);
/// Makes an MPI call and returns whether it succeeded. Never throws: for clean-up, where no error can be returned.
bool succeeds(function_ref<int()> call) noexcept;

/// Returns whether MPI may be called. It may not after MPI_Finalize, nor in a forked child, which shares its parent's
/// connections. In these cases, memory that MPI holds is leaked.
bool is_up();
/// Returns whether this is a forked child, so that MPI and this room's objects belong to the parent.
bool is_forked();

/// The use of MPI by this process. There is at most one; every communicator holds it.
class session {
 public:
  /// Returns the running session, or makes one. \errors errc::unsupported: MPI is finalised, belongs to the parent of
  /// this forked process, is not initialised (and `may_initialise` is false), or lacks MPI_THREAD_MULTIPLE.
  static result<std::shared_ptr<session>> open(bool may_initialise);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  /// Notes that a rank may be dead: finalising then waits for the other ranks for a limited time only.
  inline void doubt() { doubted_ = true; }

 private:
  session() = default;
  result<void> initialise();
  bool finalises_ = false;
  std::atomic<bool> doubted_ = false;
  MPI_Comm farewell_ = MPI_COMM_NULL;  // a duplicate of MPI_COMM_WORLD, when this session finalises MPI
};

}  // namespace shardmesh::mpi
