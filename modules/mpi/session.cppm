// SPDX-License-Identifier: Apache-2.0
// session: whether MPI is up, who brought it up and who takes it down; and its error codes as errors.
module;
#include "includes.hpp"
module shardmesh.mpi:session;

import shardmesh.comm;

namespace shardmesh::mpi {

/// Success, or errc::communication with MPI's text: "cannot duplicate a communicator: MPI_ERR_COMM: ...".
result<void> check(int code, std::string_view action);
/// As `check` of the code that the call returns. The error handler of a program may throw, out of MPI and out of the
/// call: that is such an error as well, with the exception's text.
result<void> called(function_ref<int()> call, std::string_view action);
/// Whether the call succeeded. Nothing is thrown: for ends, where there is nobody to tell.
bool succeeds(function_ref<int()> call) noexcept;

/// MPI may be called. After MPI_Finalize it may not, nor in a forked child, which shares its parent's connections. Then
/// what MPI holds stays where it is.
bool is_up();
/// A fork copied MPI and all that is here: they belong to the parent.
bool is_forked();

/// Held by every communicator. One for the process while any communicator lives.
class session {
 public:
  /// The running session, or a new one. \errors errc::unsupported: MPI is finalised, not initialised when it may not be
  /// initialised here, or lacks MPI_THREAD_MULTIPLE.
  static result<std::shared_ptr<session>> open(bool may_initialise);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  /// From now on a rank may be dead: do not wait for it at the end.
  inline void doubt() { doubted_ = true; }

 private:
  session() = default;
  result<void> initialise();
  bool finalises_ = false;
  std::atomic<bool> doubted_ = false;
  MPI_Comm farewell_ = MPI_COMM_NULL;  // of the world, when this session finalises
};

}  // namespace shardmesh::mpi
