// SPDX-License-Identifier: Apache-2.0
// The interface to Kokkos, without Kokkos's headers. Those need compiler flags (of OpenMP or a device) that no module
// may have, so engine.cpp is a plain file with flags of its own. Device memory is in device.hpp; backends and errors as
// results are in backend.cpp.
#pragma once
#include <shardmesh/kernels/batch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace shardmesh::kokkos_engine {

bool is_initialised();
bool is_finalised();  // for good: Kokkos starts only once in a process
/// Starts Kokkos. Returns "" or a description of the failure. 0 threads: Kokkos's default.
std::string initialise(int threads);
void finalise();

/// The name of Kokkos's host execution space ("OpenMP", "Serial"), and its number of threads.
const char* host_space();
int host_threads();
/// Returns the index of the device that Kokkos was started on (device.hpp), or -1 if it has none.
int device_number();

/// A batch as tables in host memory.
class host_batch;
struct host_batch_deleter {
  void operator()(host_batch* batch) const noexcept;
};
using host_batch_pointer = std::unique_ptr<host_batch, host_batch_deleter>;
bool has_kernel(const batch_item& item);
/// Prepares a batch. Precondition: `has_kernel` holds for each item.
host_batch_pointer prepare_on_host(const batch_item* items, std::size_t count);
std::size_t items_of(const host_batch& batch);
/// Runs a batch with Kokkos's threads. The caller alone runs a small batch, or one that finds the threads busy.
void run_on_host(const host_batch& batch, std::byte* const* to, const std::byte* const* from);

}  // namespace shardmesh::kokkos_engine
