// SPDX-License-Identifier: Apache-2.0
// thread_limits: whether the system permits as many threads as a simulation needs. Not exported.
module shardmesh.simulation:thread_limits;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

// Compares the number of ranks with the system's limits of threads and mappings. Other programs share these limits, so
// a thread may still fail to start.
// \errors errc::unsupported naming the limit
result<void> check_thread_limits(std::int32_t ranks);

// Makes the error of a thread that did not start. `sys` is the `errno` value.
error thread_not_started(int sys, std::int32_t rank, std::int32_t ranks);

}  // namespace shardmesh
