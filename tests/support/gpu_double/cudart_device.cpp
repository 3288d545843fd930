// SPDX-License-Identifier: Apache-2.0
// libcudart's calls about devices and their memory pools.
#include "memory.hpp"
#include "streams.hpp"

#include <cstdio>
#include <cstring>
#include <map>

using namespace gpu_double;

namespace {

bool is_device(int device) {
  return device >= 0 && device < devices_of_the_double().count;
}

// A pool's handle is a unique address. There is one pool per device, and it stores only a threshold.
char pools[64];
std::map<int, unsigned long long> thresholds;

int pool_of(const char* function, void** pool, int device) {
  call here(function, device);
  if (const int no = refused(here)) return returned(no);
  if (!is_device(device) || device >= static_cast<int>(sizeof pools)) return returned(cuda_invalid_device);
  *pool = &pools[device];
  return cuda_success;
}

int version(const char* function, int* answer) {
  call here(function, -1);
  if (const auto code = here.failed_at_once()) return returned(*code);
  *answer = cuda_version;
  return cuda_success;
}

}  // namespace

namespace gpu_double {

int device_of_pool(const void* pool) {
  const auto* const at = static_cast<const char*>(pool);
  if (std::less<>{}(at, pools) || !std::less<>{}(at, pools + sizeof pools)) return -1;
  return static_cast<int>(at - pools);
}

}  // namespace gpu_double

int cudaRuntimeGetVersion(int* answer) {
  return version("cudaRuntimeGetVersion", answer);
}

int cudaDriverGetVersion(int* answer) {
  return version("cudaDriverGetVersion", answer);
}

int cudaGetDeviceCount(int* count) {
  call here("cudaGetDeviceCount", -1);
  if (const int no = refused(here)) {
    *count = 0;
    return returned(no);
  }
  *count = devices_of_the_double().count;
  return cuda_success;
}

int cudaGetDevice(int* device) {
  call here("cudaGetDevice", current_device());
  if (const auto code = here.failed_at_once()) return returned(*code);
  if (devices_of_the_double().count == 0) return returned(cuda_no_device);
  *device = current_device();
  return cuda_success;
}

int cudaSetDevice(int device) {
  call here("cudaSetDevice", device);
  if (const auto code = here.failed_at_once()) return returned(*code);
  if (devices_of_the_double().count == 0) return returned(cuda_no_device);
  if (!is_device(device)) return returned(cuda_invalid_device);
  current_device() = device;
  return cuda_success;
}

int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  call here("cudaDeviceGetAttribute", device);
  if (const auto code = here.failed_at_once()) return returned(*code);
  if (devices_of_the_double().count == 0) return returned(cuda_no_device);
  if (!is_device(device)) return returned(cuda_invalid_device);
  static const std::map<int, int> known{{1, 1024},  // threads per block
                                        {8, 49152}, {10, 32}, {11, 0x7FFFFFFF}, {16, 4}, {19, 1}, {31, 1},
                                        {33, 1},    {37, 64}, {38, 1 << 20},    {40, 2}, {41, 1}, {75, 9},
                                        {76, 0},    {91, 1},  {97, 49152},      {99, 1}, {115, 1}};  // 115: memory
                                                                                                     // pools exist
  const auto found = known.find(attribute);
  *value = found == known.end() ? 0 : found->second;
  return cuda_success;
}

int cudaGetDeviceProperties(cuda_device_properties* properties, int device) {
  call here("cudaGetDeviceProperties", device);
  if (const int no = refused(here)) return returned(no);
  if (!is_device(device)) return returned(cuda_invalid_device);
  std::snprintf(properties->name, sizeof properties->name, "device %d of the double", device);
  properties->total_memory = memory_of_the_double().limit();
  return cuda_success;
}

int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  call here("cudaDeviceGetPCIBusId", device);
  if (const int no = refused(here)) return returned(no);
  if (!is_device(device)) return returned(cuda_invalid_device);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device + 1) & 0xFF);
  return cuda_success;
}

int cudaDeviceSynchronize() {
  call here("cudaDeviceSynchronize", current_device());
  if (const int no = refused(here)) return returned(no);
  const int device = current_device();
  for (const operation_ref& op : engine::the().pending_on(device)) engine::the().wait(here.lock(), op);
  for (const auto& each : devices_of_the_double().streams())  // the host now sees work that was done before
    if (each->device == device && each->last && each->last->done()) engine::the().seen(*each->last);
  return returned(engine::the().device_error(device));
}

int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  call here("cudaDeviceCanAccessPeer", device);
  if (const int no = refused(here)) return returned(no);
  if (!is_device(device) || !is_device(peer)) return returned(cuda_invalid_device);
  *can = device != peer ? 1 : 0;
  return cuda_success;
}

// Copies between devices work without peer access, as in CUDA. The double's kernels are host functions and cannot tell.
int cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  call here("cudaDeviceEnablePeerAccess", current_device());
  if (const int no = refused(here)) return returned(no);
  if (flags != 0) return returned(cuda_invalid_value);
  return returned(is_device(peer) && peer != current_device() ? cuda_success : cuda_invalid_device);
}

int cudaDeviceDisablePeerAccess(int peer) {
  call here("cudaDeviceDisablePeerAccess", current_device());
  if (const int no = refused(here)) return returned(no);
  return returned(is_device(peer) ? cuda_success : cuda_invalid_device);
}

int cudaDeviceGetDefaultMemPool(void** pool, int device) {
  return pool_of("cudaDeviceGetDefaultMemPool", pool, device);
}

int cudaDeviceGetMemPool(void** pool, int device) {
  return pool_of("cudaDeviceGetMemPool", pool, device);
}

int cudaMemPoolSetAttribute(void* pool, int attribute, void* value) {
  call here("cudaMemPoolSetAttribute", device_of_pool(pool));
  if (const int no = refused(here)) return returned(no);
  if (device_of_pool(pool) < 0 || attribute < 1 || attribute > 8) return returned(cuda_invalid_value);
  if (attribute == 4) std::memcpy(&thresholds[device_of_pool(pool)], value, 8);
  return cuda_success;
}

int cudaMemPoolGetAttribute(void* pool, int attribute, void* value) {
  call here("cudaMemPoolGetAttribute", device_of_pool(pool));
  if (const int no = refused(here)) return returned(no);
  const int device = device_of_pool(pool);
  if (device < 0 || attribute < 1 || attribute > 8) return returned(cuda_invalid_value);
  if (attribute <= 3) {
    const int yes = 1;
    std::memcpy(value, &yes, sizeof yes);
    return cuda_success;
  }
  const unsigned long long answer = attribute == 4 ? thresholds[device] : memory_of_the_double().used(device);
  std::memcpy(value, &answer, sizeof answer);
  return cuda_success;
}

int cudaMemPoolTrimTo(void* pool, std::size_t) {
  call here("cudaMemPoolTrimTo", device_of_pool(pool));
  if (const int no = refused(here)) return returned(no);
  return returned(device_of_pool(pool) < 0 ? cuda_invalid_value : cuda_success);
}
