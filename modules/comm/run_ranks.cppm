// SPDX-License-Identifier: Apache-2.0
// run_ranks: one function on every rank of a group of threads. Not here: threads that live longer (thread_group).
export module shardmesh.comm:run_ranks;

import shardmesh.std;
import shardmesh.core;
import :any_communicator;

export namespace shardmesh {

/// Runs `body` on `size` threads, each with the communicator of its rank, and waits for all of them. `body` is called
/// from several threads at once. When a body returns an error or throws, the group is aborted with it, and when a body
/// returns while others wait for its rank, they get an error: no rank waits for ever.
/// \returns the error that came first in time, not one that it caused; `ranks` names where it came from, unless the
///          error names ranks itself or is a gap, for which no rank that reports it is to blame.
/// \errors  errc::invalid_argument for a size below 1; errc::communication for what a body throws (but a
///          shardmesh::exception keeps its error) and when a thread cannot be started.
result<void> run_ranks(std::int32_t size, function_ref<result<void>(any_communicator&)> body);

}  // namespace shardmesh
