// SPDX-License-Identifier: Apache-2.0
// Memory, batches, and events of the device that Kokkos was started on, through the device's runtime (CUDA or HIP). A
// plain header, not a module: if this Kokkos has a device, its compiler compiles device.cpp; otherwise every function
// there reports that there is none. Functions return "" or a description of the failure. Streams are cudaStream_t or
// hipStream_t; null is the device's default stream.
#pragma once
#include <shardmesh/kernels/batch.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace shardmesh::kokkos_engine {

/// Returns "CUDA" or "HIP", or nullptr when device.cpp was compiled without a device.
const char* device_space();
/// Returns why the device cannot be used; "" if it can, or if device.cpp was compiled without a device.
std::string missing_device();

std::string allocate_on_device(std::int64_t bytes, void* stream, void*& memory);
void free_on_device(void* memory, void* stream);
std::string allocate_pinned(std::int64_t bytes, void*& memory);
void free_pinned(void* memory);
/// Copies bytes between any two memories, in the stream's order.
std::string copy_on_device(void* to, const void* from, std::int64_t bytes, void* stream);

/// A batch as tables in device memory.
class device_batch;
struct device_batch_deleter {
  void operator()(device_batch* batch) const noexcept;
};
using device_batch_pointer = std::unique_ptr<device_batch, device_batch_deleter>;
std::string prepare_on_device(const batch_item* items, std::size_t count, device_batch_pointer& made);
std::size_t items_of(const device_batch& batch);
/// Runs a batch with one launch per phase. The addresses are kernel arguments, so nothing is uploaded.
std::string run_on_device(const device_batch& batch, std::byte* const* to, const std::byte* const* from, void* stream);

std::string record_on_device(void* stream, void*& event);
std::string is_done_on_device(void* event, bool& done);
std::string wait_on_device(void* event);
std::string hold_on_device(void* event, void* stream);
void destroy_on_device(void* event);

}  // namespace shardmesh::kokkos_engine
