// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
module shardmesh.cuda;

namespace shardmesh::cuda {
namespace {

errc code_of(int code) {
  switch (code) {
    case error_memory_allocation:
      return errc::no_memory;
    case error_initialization:
    case error_insufficient_driver:
    case error_no_device:
    case error_not_supported:
      return errc::unsupported;
    case error_invalid_value:
    case error_invalid_device:
      return errc::invalid_argument;
    default:
      return errc::communication;
  }
}

result<functions> functions_of(const shared_library& library) {
  functions made;
  function_loader load(library);
  load("cudaRuntimeGetVersion", made.runtime_get_version);
  load("cudaGetErrorString", made.get_error_string);
  load("cudaGetLastError", made.get_last_error);
  load("cudaGetDeviceCount", made.get_device_count);
  load("cudaGetDevice", made.get_device);
  load("cudaSetDevice", made.set_device);
  load("cudaDeviceGetAttribute", made.device_get_attribute);
  load("cudaPointerGetAttributes", made.pointer_get_attributes);
  load("cudaMalloc", made.malloc);
  load("cudaFree", made.free);
  load("cudaMallocAsync", made.malloc_async);
  load("cudaFreeAsync", made.free_async);
  load("cudaHostAlloc", made.host_alloc);
  load("cudaFreeHost", made.free_host);
  load("cudaMemcpyAsync", made.memcpy_async);
  load("cudaMemcpy2DAsync", made.memcpy_2d_async);
  load("cudaLaunchHostFunc", made.launch_host_func);
  load("cudaStreamCreateWithFlags", made.stream_create_with_flags);
  load("cudaStreamDestroy", made.stream_destroy);
  load("cudaStreamSynchronize", made.stream_synchronize);
  load("cudaStreamQuery", made.stream_query);
  load("cudaStreamWaitEvent", made.stream_wait_event);
  load("cudaEventCreateWithFlags", made.event_create_with_flags);
  load("cudaEventDestroy", made.event_destroy);
  load("cudaEventRecord", made.event_record);
  load("cudaEventQuery", made.event_query);
  load("cudaEventSynchronize", made.event_synchronize);
  SHARDMESH_TRY(load.outcome());
  library.find("cudaDeviceCanAccessPeer", made.device_can_access_peer);
  library.find("cudaDeviceGetDefaultMemPool", made.device_get_default_mem_pool);
  library.find("cudaMemPoolSetAttribute", made.mem_pool_set_attribute);
  library.find("cudaMemPoolSetAccess", made.mem_pool_set_access);
  library.find("cudaDriverGetVersion", made.driver_get_version);
  library.find("cudaGetDeviceProperties", made.get_device_properties);
  const bool loads_kernels = library.find("cudaLibraryLoadData", made.library_load_data) &&
                             library.find("cudaLibraryGetKernel", made.library_get_kernel) &&
                             library.find("cudaLibraryUnload", made.library_unload) &&
                             library.find("cudaLaunchKernel", made.launch_kernel);
  if (!loads_kernels) made.library_load_data = nullptr;
  return made;
}

}  // namespace

result<runtime> runtime::load(const std::string& path) {
  runtime made;
  SHARDMESH_TRY(made.library_, shared_library::open("the CUDA runtime", path, "SHARDMESH_CUDART",
                                                    {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}));
  SHARDMESH_TRY(functions table, functions_of(made.library_));
  made.functions_ = std::make_shared<const functions>(table);
  return made;
}

result<void> runtime::check(int code, std::string_view operation, device where) const {
  if (code == success) return {};
  static_cast<void>(call().get_last_error());  // clears it, or the thread's next call would return it again
  const char* const text = call().get_error_string(code);
  return fail(code_of(code), std::string(operation) + " on " + to_string(where) +
                                 " failed: " + (text != nullptr ? text : "an unknown error") + " (CUDA error " +
                                 std::to_string(code) + ")");
}

result<std::int32_t> runtime::device_count() const {
  int count = 0;
  SHARDMESH_TRY(check(call().get_device_count(&count), "cudaGetDeviceCount"));
  return count;
}

result<device> runtime::resolve(device where) const {
  if (where.type != device_type::cuda)
    return fail(errc::invalid_argument, "the device is not a CUDA device").with_values("cuda:N", to_string(where));
  SHARDMESH_TRY(const std::int32_t count, device_count());
  if (where.index < 0) {
    int current = 0;
    SHARDMESH_TRY(check(call().get_device(&current), "cudaGetDevice", where));
    return device{device_type::cuda, static_cast<std::int16_t>(current)};
  }
  if (where.index < count) return where;
  return fail(errc::invalid_argument, "there is no such CUDA device")
      .with_values(count == 0 ? "a CUDA device, of which there is none" : "cuda:0 to cuda:" + std::to_string(count - 1),
                   to_string(where));
}

result<int> runtime::architecture(device where) const {
  int major = 0, minor = 0;
  SHARDMESH_TRY(check(call().device_get_attribute(&major, attribute_compute_major, where.index),
                      "cudaDeviceGetAttribute", where));
  SHARDMESH_TRY(check(call().device_get_attribute(&minor, attribute_compute_minor, where.index),
                      "cudaDeviceGetAttribute", where));
  return 10 * major + minor;
}

current_device::current_device(const runtime& cuda, device where) : cuda_(cuda) {
  int before = 0;
  outcome_ = cuda.check(cuda.call().get_device(&before), "cudaGetDevice", where);
  if (!outcome_ || before == where.index) return;
  outcome_ = cuda.check(cuda.call().set_device(where.index), "cudaSetDevice", where);
  if (outcome_) before_ = before;
}

current_device::~current_device() {
  if (before_ >= 0) static_cast<void>(cuda_.call().set_device(before_));
}

}  // namespace shardmesh::cuda
