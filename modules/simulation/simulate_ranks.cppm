// SPDX-License-Identifier: Apache-2.0
// simulate_ranks: runs one function on every rank of a simulation, as `run_ranks` does on threads that run at the same
// time.
export module shardmesh.simulation:simulate_ranks;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :network_model;
import :simulation_report;

export namespace shardmesh {

/// The options of `simulate_ranks`.
struct simulation_options {
  network_model network{};
  /// Adds the CPU time of a rank's thread between its calls to the rank's modelled time. It varies from run to run, and
  /// leaves out the threads that a rank starts.
  bool count_cpu_time = false;
  bool trace = false;  // record every message and all_gather in `simulation_report::events`
  /// Address space of a rank's stack. Only touched pages use memory, usually 20 to 60 KiB. At least 128 KiB.
  std::int64_t stack_bytes = std::int64_t{512} << 10;
};

/// Runs `body` on `size` ranks, each with its communicator, and waits for all of them. Every rank is a thread, but only
/// one of them runs at a time, in an order that depends on the calls of the ranks alone. The first turns are in rank
/// order. `target<simulated_communicator>()` of the communicator gives the rank's modelled time. A rank must not wait
/// for another rank by other means than its communicator, such as a lock, because the other rank does not run then.
/// \returns the counts of each rank, and the trace
/// \errors  those of `run_ranks`; errc::communication when every rank waits or has returned (lists which rank waits for
///          which); errc::invalid_argument for a model or a stack out of range; errc::unsupported when the system
///          permits too few threads (names the limit)
/// Cost: a switch of threads for each wait. Memory per rank: touched pages of the stack, about 2 KiB of our own, and
///       about 25 KiB in the kernel. 16,384 ranks need 16,384 threads, and twice as many mappings (vm.max_map_count).
result<simulation_report> simulate_ranks(std::int32_t size, function_ref<result<void>(any_communicator&)> body,
                                         const simulation_options& options = {});

}  // namespace shardmesh
