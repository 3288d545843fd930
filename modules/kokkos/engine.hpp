// SPDX-License-Identifier: Apache-2.0
// What the room asks of Kokkos, without its headers: they want flags (OpenMP's, a device compiler's) that no module may
// have, so engine.cpp is a file of its own flags behind this. Not here: memory of devices (device.hpp),
// errors as results, backends (backend.cpp).
#pragma once
#include <shardmesh/kernels/batch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace shardmesh::kokkos_engine {

bool is_initialised();
bool is_finalised();  // for good: Kokkos starts once in a process
/// "" or what went wrong. 0 threads: as many as Kokkos takes by itself.
std::string initialise(int threads);
void finalise();

/// The host's execution space of this Kokkos ("OpenMP", "Serial"), and how many threads it runs.
const char* host_space();
int host_threads();
/// The number of the device that Kokkos was started on (device.hpp); -1 where it has none.
int device_number();

/// A batch as tables in host memory.
class host_batch;
struct host_batch_deleter {
  void operator()(host_batch* batch) const noexcept;
};
using host_batch_pointer = std::unique_ptr<host_batch, host_batch_deleter>;
bool has_kernel(const batch_item& item);
/// Precondition: has_kernel of each.
host_batch_pointer prepare_on_host(const batch_item* items, std::size_t count);
std::size_t items_of(const host_batch& batch);
/// By Kokkos's threads; by the caller alone where there is little to do, or another thread has them busy.
void run_on_host(const host_batch& batch, std::byte* const* to, const std::byte* const* from);

}  // namespace shardmesh::kokkos_engine
