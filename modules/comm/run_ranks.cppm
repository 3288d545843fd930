// SPDX-License-Identifier: Apache-2.0
// run_ranks: runs one function on every rank of a group of threads. For threads that live longer, see `thread_group`.
export module shardmesh.comm:run_ranks;

import shardmesh.std;
import shardmesh.core;
import :any_communicator;

export namespace shardmesh {

/// Runs `body` on `size` threads, each with the communicator of its rank, and waits for all of them. Several threads
/// call `body` at once. An error or exception from one call aborts the group. When a call returns while other ranks
/// wait for its rank, those ranks get an error, so that no rank waits for ever.
/// \returns the first error in time, not one of its consequences. Its `ranks` names the rank that it came from, unless
///          it already names ranks or is errc::gap: no single rank is to blame for a gap.
/// \errors  errc::invalid_argument for a size below 1; errc::communication when a body throws (a shardmesh::exception
///          keeps its own error) or a thread cannot be started.
result<void> run_ranks(std::int32_t size, function_ref<result<void>(any_communicator&)> body);

}  // namespace shardmesh

export namespace shardmesh::detail {

// Calls `body` on one rank. An exception becomes an error that names the rank, except for a shardmesh::exception, which
// keeps its own error.
result<void> run_body(any_communicator& comm, function_ref<result<void>(any_communicator&)> body);

}  // namespace shardmesh::detail
