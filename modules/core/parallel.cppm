// SPDX-License-Identifier: Apache-2.0
// parallel_for: independent pieces of work on a few threads; the first error stops the rest.
export module shardmesh.core:parallel;

import shardmesh.std;
import :function_ref;
import :result;

export namespace shardmesh {

/// `requested`, or the machine's cores when it is 0.
int thread_count(int requested);

/// Calls `body(i)` for every i in [0, count), in ascending order of start, on up to `threads` threads (this one
/// included). After an error no further i is started; the error of the lowest i is returned.
result<void> parallel_for(int threads, std::int64_t count, function_ref<result<void>(std::int64_t)> body);

}  // namespace shardmesh
