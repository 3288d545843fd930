// SPDX-License-Identifier: Apache-2.0
// parallel_for: runs independent pieces of work on a few threads and stops at the first error.
export module shardmesh.core:parallel;

import shardmesh.std;
import :function_ref;
import :result;

export namespace shardmesh {

/// Returns `requested`, or the machine's number of cores when `requested` is 0 or negative.
int thread_count(int requested);

/// Calls `body(i)` for every i in [0, count), started in ascending order, on up to `threads` threads including the
/// calling one. After an error, no further i is started. Returns the error of the lowest i that failed. The threads
/// take over the limits of the calling thread's `detail::call_scope`.
result<void> parallel_for(int threads, std::int64_t count, function_ref<result<void>(std::int64_t)> body);

}  // namespace shardmesh
