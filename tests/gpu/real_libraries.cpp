// SPDX-License-Identifier: Apache-2.0
// A library with the name and the functions of the double (tests/support/gpu_double) that passes every call to the real
// libcudart and libnccl. A test program that finds it instead of the double runs on a GPU, unchanged. Programs must
// leave out the tests with the tag [double]: they inject faults or read the double's findings.
//
// Tests use eight devices, one for each rank. Device n of the program is GPU n modulo the number of GPUs, so a machine
// with one GPU runs them all (NCCL needs NCCL_MULTI_RANK_GPU_ENABLE=1 for several ranks on a GPU).
//
// Environment: SHARDMESH_CUDART, SHARDMESH_NCCL (the real libraries), SHARDMESH_REAL_KERNELS (the library of kernels;
// its functions are passed on as well, because they take a device). A library that is not found ends the program
// with 77. For Linux on x86-64.
#include <dlfcn.h>
#include <shardmesh/kernels/cuda_kernels.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#define GPU_DOUBLE_TYPES_ONLY
#include "gpu_double/cuda_abi.h"
#include "gpu_double/gpu_double.h"
#include "gpu_double/nccl_abi.h"

using namespace gpu_double;

// A function of the libraries is a jump through a pointer, which keeps every argument, and counts its calls.
#define PASS_ON(name)                                                            \
  extern "C" {                                                                   \
  __attribute__((visibility("hidden"), used)) void* gpu_target_##name = nullptr; \
  __attribute__((visibility("hidden"), used)) std::int64_t gpu_calls_##name = 0; \
  }                                                                              \
  asm(".text\n"                                                                  \
      ".globl " #name                                                            \
      "\n"                                                                       \
      ".type " #name ", @function\n" #name                                       \
      ":\n"                                                                      \
      "  lock incq gpu_calls_" #name                                             \
      "(%rip)\n"                                                                 \
      "  jmp *gpu_target_" #name                                                 \
      "(%rip)\n"                                                                 \
      ".size " #name ", . - " #name "\n");
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) PASS_ON(name)
#include "gpu_double/cuda_functions.inc"
#undef CUDA_DOUBLE_FUNCTION
#define NCCL_DOUBLE_FUNCTION(result, name, parameters) PASS_ON(name)
#include "gpu_double/nccl_functions.inc"
#undef NCCL_DOUBLE_FUNCTION

namespace {

// The functions of the real libraries.
struct functions {
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) result(*name) parameters = nullptr;
#include "gpu_double/cuda_functions.inc"
#undef CUDA_DOUBLE_FUNCTION
  int (*cudaMemPoolSetAccess)(void* pool, const void* accesses, std::size_t count) = nullptr;
};
functions real;

struct kernel_functions {
  int (*version)() = nullptr;
  std::size_t (*item_bytes)() = nullptr;
  const char* (*build)() = nullptr;
  int (*create)(const void*, std::size_t, int, std::size_t*, void**) = nullptr;
  int (*launch)(void*, unsigned char* const*, std::size_t, const unsigned char* const*, std::size_t, void*) = nullptr;
  void (*destroy)(void*) = nullptr;
};
kernel_functions kernels;

struct entry {
  const char* name;
  void** target;
  std::int64_t* calls;
};
constexpr entry entries[] = {
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) {#name, &gpu_target_##name, &gpu_calls_##name},
#include "gpu_double/cuda_functions.inc"
#undef CUDA_DOUBLE_FUNCTION
#define NCCL_DOUBLE_FUNCTION(result, name, parameters) {#name, &gpu_target_##name, &gpu_calls_##name},
#include "gpu_double/nccl_functions.inc"
#undef NCCL_DOUBLE_FUNCTION
};

// The devices that the program sees.
std::atomic<int> devices{8};
thread_local int current = 0;

int gpus() {
  static const int count = [] {
    int found = 0;
    return real.cudaGetDeviceCount(&found) == 0 && found > 0 ? found : 1;
  }();
  return count;
}
int gpu_of(int device) {
  return device < 0 ? device : device % gpus();
}

// The device, as the program sees it, of each allocation: the real library knows only the GPU.
std::mutex lock;
struct allocation {
  std::size_t bytes;
  int device;
};
std::map<std::uintptr_t, allocation> allocations;

int remember(int error, void** memory, std::size_t bytes) {
  if (error != 0) return error;
  const std::scoped_lock locked(lock);
  allocations[reinterpret_cast<std::uintptr_t>(*memory)] = {bytes, current};
  return error;
}
void forget(void* memory) {
  const std::scoped_lock locked(lock);
  allocations.erase(reinterpret_cast<std::uintptr_t>(memory));
}
int device_of(const void* memory, int otherwise) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const std::scoped_lock locked(lock);
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return otherwise;
  --found;
  return address - found->first < found->second.bytes ? found->second.device : otherwise;
}

int get_device_count(int* count) {
  *count = devices;
  if (*count == 0) return cuda_no_device;
  int found = 0;
  return real.cudaGetDeviceCount(&found);
}
int get_device(int* device) {
  *device = current;
  return 0;
}
int set_device(int device) {
  if (device < 0 || device >= devices) return cuda_invalid_device;
  const int error = real.cudaSetDevice(gpu_of(device));
  if (error == 0) current = device;
  return error;
}
int get_attribute(int* value, int attribute, int device) {
  return real.cudaDeviceGetAttribute(value, attribute, gpu_of(device));
}
int get_properties(cuda_device_properties* properties, int device) {
  return real.cudaGetDeviceProperties(properties, gpu_of(device));
}
int get_bus(char* text, int length, int device) {
  return real.cudaDeviceGetPCIBusId(text, length, gpu_of(device));
}
int can_access_peer(int* can, int device, int peer) {
  *can = 0;
  return gpu_of(device) == gpu_of(peer) ? 0 : real.cudaDeviceCanAccessPeer(can, gpu_of(device), gpu_of(peer));
}
int get_default_pool(void** pool, int device) {
  return real.cudaDeviceGetDefaultMemPool(pool, gpu_of(device));
}
int get_pool(void** pool, int device) {
  return real.cudaDeviceGetMemPool(pool, gpu_of(device));
}
int get_pointer_attributes(cuda_pointer_attributes* attributes, const void* memory) {
  const int error = real.cudaPointerGetAttributes(attributes, memory);
  if (error == 0 && attributes->type == memory_device) attributes->device = device_of(memory, attributes->device);
  return error;
}
int allocate(void** memory, std::size_t bytes) {
  return remember(real.cudaMalloc(memory, bytes), memory, bytes);
}
int allocate_on_stream(void** memory, std::size_t bytes, void* stream) {
  return remember(real.cudaMallocAsync(memory, bytes, stream), memory, bytes);
}
int allocate_from_pool(void** memory, std::size_t bytes, void* pool, void* stream) {
  return remember(real.cudaMallocFromPoolAsync(memory, bytes, pool, stream), memory, bytes);
}
int release(void* memory) {
  forget(memory);
  return real.cudaFree(memory);
}
int release_on_stream(void* memory, void* stream) {
  forget(memory);
  return real.cudaFreeAsync(memory, stream);
}

int missing() {
  return cuda_not_supported;
}

[[noreturn]] void not_here(const char* what, const char* why) {
  std::printf("skipped: %s was not found: %s\n", what, why != nullptr ? why : "no reason given");
  std::fflush(stdout);
  std::_Exit(77);
}

// RTLD_DEEPBIND: the libraries call their own functions, not ours of the same names.
void* open(const char* what, const char* variable, const char* name) {
  const char* const path = std::getenv(variable);
  void* const opened = ::dlopen(path != nullptr && *path != '\0' ? path : name, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (opened == nullptr) not_here(what, ::dlerror());
  return opened;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

void load_kernels() {
  const char* const path = std::getenv("SHARDMESH_REAL_KERNELS");
  if (path == nullptr || *path == '\0') return;
  void* const library = open("the library of kernels", "SHARDMESH_REAL_KERNELS", "");
  find(library, "shardmesh_cuda_kernels_version", kernels.version);
  find(library, "shardmesh_cuda_kernels_item_bytes", kernels.item_bytes);
  find(library, "shardmesh_cuda_kernels_build", kernels.build);
  find(library, "shardmesh_cuda_table_create", kernels.create);
  find(library, "shardmesh_cuda_table_launch", kernels.launch);
  find(library, "shardmesh_cuda_table_destroy", kernels.destroy);
  if (kernels.version == nullptr || kernels.create == nullptr || kernels.launch == nullptr)
    not_here("a function of the library of kernels", path);
}

#define REPLACE(name, ours) gpu_target_##name = reinterpret_cast<void*>(&(ours))

__attribute__((constructor)) void load() {
  void* const cudart = open("libcudart", "SHARDMESH_CUDART", "libcudart.so.13");
  void* const nccl = open("libnccl", "SHARDMESH_NCCL", "libnccl.so.2");
  for (const entry& each : entries) {
    void* const library = std::string_view(each.name).substr(0, 4) == "cuda" ? cudart : nccl;
    void* const found = ::dlsym(library, each.name);
    *each.target = found != nullptr ? found : reinterpret_cast<void*>(&missing);
  }
#define CUDA_DOUBLE_FUNCTION(result, name, parameters) find(cudart, #name, real.name);
#include "gpu_double/cuda_functions.inc"
#undef CUDA_DOUBLE_FUNCTION
  find(cudart, "cudaMemPoolSetAccess", real.cudaMemPoolSetAccess);
  REPLACE(cudaGetDeviceCount, get_device_count);
  REPLACE(cudaGetDevice, get_device);
  REPLACE(cudaSetDevice, set_device);
  REPLACE(cudaDeviceGetAttribute, get_attribute);
  REPLACE(cudaGetDeviceProperties, get_properties);
  REPLACE(cudaDeviceGetPCIBusId, get_bus);
  REPLACE(cudaDeviceCanAccessPeer, can_access_peer);
  REPLACE(cudaDeviceGetDefaultMemPool, get_default_pool);
  REPLACE(cudaDeviceGetMemPool, get_pool);
  REPLACE(cudaPointerGetAttributes, get_pointer_attributes);
  REPLACE(cudaMalloc, allocate);
  REPLACE(cudaMallocAsync, allocate_on_stream);
  REPLACE(cudaMallocFromPoolAsync, allocate_from_pool);
  REPLACE(cudaFree, release);
  REPLACE(cudaFreeAsync, release_on_stream);
  load_kernels();
}

[[noreturn]] void only_the_double(const char* function) {
  std::fprintf(stderr, "%s: this test needs the double; leave out the tests with the tag [double]\n", function);
  std::abort();
}

}  // namespace

// Not a function of the double; ranks that are threads on several GPUs need it (see room cuda).
extern "C" __attribute__((visibility("default"))) int cudaMemPoolSetAccess(void* pool, const void* accesses,
                                                                           std::size_t count) {
  struct access {
    int location_type;
    int device;
    int flags;
  };
  if (real.cudaMemPoolSetAccess == nullptr || count != 1) return cuda_not_supported;
  access mapped = *static_cast<const access*>(accesses);
  mapped.device = gpu_of(mapped.device);
  return real.cudaMemPoolSetAccess(pool, &mapped, 1);
}

// The functions of the library of kernels. Without SHARDMESH_REAL_KERNELS, there is none: another version is refused.
#define GPU_KERNELS_API extern "C" __attribute__((visibility("default")))
GPU_KERNELS_API int shardmesh_cuda_kernels_version(void) {
  return kernels.version != nullptr ? kernels.version() : 0;
}
GPU_KERNELS_API std::size_t shardmesh_cuda_kernels_item_bytes(void) {
  return kernels.item_bytes != nullptr ? kernels.item_bytes() : 0;
}
GPU_KERNELS_API const char* shardmesh_cuda_kernels_build(void) {
  return kernels.build != nullptr ? kernels.build() : "no kernels: SHARDMESH_REAL_KERNELS is not set";
}
GPU_KERNELS_API int shardmesh_cuda_table_create(const void* items, std::size_t count, int device, std::size_t* refused,
                                                void** table) {
  return kernels.create(items, count, gpu_of(device), refused, table);
}
GPU_KERNELS_API int shardmesh_cuda_table_launch(void* table, unsigned char* const* to, std::size_t to_count,
                                                const unsigned char* const* from, std::size_t from_count,
                                                void* stream) {
  return kernels.launch(table, to, to_count, from, from_count, stream);
}
GPU_KERNELS_API void shardmesh_cuda_table_destroy(void* table) {
  kernels.destroy(table);
}

// What a GPU does not tell is reported as nothing: no problem, no leak.
void double_reset(std::uint64_t) {
  devices = 8;
  static_cast<void>(set_device(0));
  static_cast<void>(real.cudaGetLastError());
  for (const entry& each : entries) *each.calls = 0;
}
void double_set_devices(int count) {
  devices = count;
}
void double_set_background(int) {}
int double_problems(void) {
  return 0;
}
const char* double_problem_text(void) {
  return "";
}
int double_leaks(void) {
  return 0;
}
const char* double_leak_text(void) {
  return "";
}
const char* double_pending_text(void) {
  return "";
}
std::int64_t double_calls(const char* function) {
  for (const entry& each : entries)
    if (std::string_view(each.name) == function) return *each.calls;
  return 0;
}
void double_release(void) {}
void double_touch(const void*, std::size_t, int) {}
void double_set_memory(std::size_t) {
  only_the_double("double_set_memory");
}
std::int64_t double_calls_of_children(void) {
  only_the_double("double_calls_of_children");
}
void double_inject(const char*, int, int, int, int) {
  only_the_double("double_inject");
}
