// SPDX-License-Identifier: Apache-2.0
// libcudart's calls that allocate and free memory.
#include "memory.hpp"
#include "streams.hpp"

#include <cstring>

namespace gpu_double {
int device_of_pool(const void* pool);  // cudart_device.cpp
}

using namespace gpu_double;

namespace {

allocation* at(const void* address) {
  allocation* found = memory_of_the_double().find(address);
  return found && found->begin == reinterpret_cast<std::uintptr_t>(address) ? found : nullptr;
}

// The allocation to free; reports a problem if the call may not free it.
allocation* to_free(const char* function, const void* address, bool pinned) {
  allocation* which = at(address);
  if (!which || (which->kind == memory_kind::pinned) != pinned || which->kind == memory_kind::registered) {
    engine::the().problem(std::string(function) + " of memory that was not allocated so");
    return nullptr;
  }
  if (which->given_back) {
    engine::the().problem(std::string(function) + " frees " + memory_of_the_double().describe(*which) + " twice");
    return nullptr;
  }
  return which;
}

int give_pinned(const char* function, void** memory, std::size_t bytes) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  *memory = nullptr;
  if (bytes == 0) return cuda_success;
  const allocation* made = memory_of_the_double().make(memory_kind::pinned, current_device(), bytes);
  if (!made) return returned(cuda_no_memory);
  *memory = reinterpret_cast<void*>(made->begin);
  return cuda_success;
}

int give_in_order(const char* function, void** memory, std::size_t bytes, void* pool, void* stream_handle) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  stream* on = devices_of_the_double().find_stream(stream_handle, function);
  if (!on) return returned(cuda_invalid_handle);
  *memory = nullptr;
  if (bytes == 0) return cuda_success;
  const int device = pool ? device_of_pool(pool) : on->device;
  if (device < 0) return returned(cuda_invalid_value);
  allocation* made = memory_of_the_double().make(memory_kind::device, device, bytes);
  if (!made) return returned(cuda_no_memory);
  made->from_pool = true;
  made->now = allocation::life::not_yet;
  const std::uintptr_t begin = made->begin;
  const operation_ref op = new_operation(here, *on, memory_of_the_double().describe(*made));
  op->body = [begin, bytes] {
    allocation* which = memory_of_the_double().find(reinterpret_cast<void*>(begin));
    which->now = allocation::life::live;
    std::memset(reinterpret_cast<void*>(begin), memory::fresh, bytes);
  };
  // The allocation's bytes do not exist yet, so `allows` cannot check this access: only its order is recorded.
  made->uses.push_back({op, {begin, bytes, true}});
  *memory = reinterpret_cast<void*>(begin);
  devices_of_the_double().append(*on, op);
  return cuda_success;
}

// Memory of cudaMalloc is freed after all work on the device, as in the driver; memory of a pool, at once.
int take_back(call& here, void* address, bool pinned) {
  if (!address) return cuda_success;
  allocation* which = to_free(here.function(), address, pinned);
  if (!which) return returned(cuda_invalid_value);
  which->given_back = true;
  std::vector<operation_ref> users;
  for (const allocation::use& use : which->uses)
    if (!use.by->done()) users.push_back(use.by);
  if (which->from_pool) {
    for (const operation_ref& user : users)
      engine::the().problem(std::string(here.function()) + " frees " + memory_of_the_double().describe(*which) +
                            " while " + user->what + " is not done");
  } else {
    const std::vector<operation_ref> pending = engine::the().pending_on(which->device);
    users.insert(users.end(), pending.begin(), pending.end());
    for (const operation_ref& op : users) engine::the().wait(here.lock(), op);
  }
  memory_of_the_double().end(*which);
  return cuda_success;
}

}  // namespace

int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  call here("cudaMemGetInfo", current_device());
  if (const int no = refused(here)) return returned(no);
  *total = memory_of_the_double().limit();
  *free = *total - memory_of_the_double().used(current_device());
  return cuda_success;
}

int cudaMalloc(void** memory, std::size_t bytes) {
  call here("cudaMalloc", current_device());
  if (const int no = refused(here)) return returned(no);
  *memory = nullptr;
  if (bytes == 0) return cuda_success;
  const allocation* made = memory_of_the_double().make(memory_kind::device, current_device(), bytes);
  if (!made) return returned(cuda_no_memory);
  *memory = reinterpret_cast<void*>(made->begin);
  return cuda_success;
}

int cudaFree(void* memory) {
  call here("cudaFree", current_device());
  if (const int no = refused(here)) return returned(no);
  return take_back(here, memory, false);
}

int cudaMallocAsync(void** memory, std::size_t bytes, void* stream) {
  return give_in_order("cudaMallocAsync", memory, bytes, nullptr, stream);
}

int cudaMallocFromPoolAsync(void** memory, std::size_t bytes, void* pool, void* stream) {
  if (!pool) return returned(cuda_invalid_value);
  return give_in_order("cudaMallocFromPoolAsync", memory, bytes, pool, stream);
}

int cudaFreeAsync(void* memory, void* stream_handle) {
  call here("cudaFreeAsync", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* on = devices_of_the_double().find_stream(stream_handle, "cudaFreeAsync");
  if (!on) return returned(cuda_invalid_handle);
  if (!memory) return cuda_success;
  allocation* which = to_free("cudaFreeAsync", memory, false);
  if (!which) return returned(cuda_invalid_value);
  const operation_ref op = new_operation(here, *on, memory_of_the_double().describe(*which));
  op->accesses.push_back({which->begin, which->bytes, true});
  op->body = [begin = which->begin] {
    memory_of_the_double().end(*memory_of_the_double().find(reinterpret_cast<void*>(begin)));
  };
  which->given_back = true;
  devices_of_the_double().append(*on, op);
  return cuda_success;
}

int cudaHostAlloc(void** memory, std::size_t bytes, unsigned int) {
  return give_pinned("cudaHostAlloc", memory, bytes);
}

int cudaMallocHost(void** memory, std::size_t bytes) {
  return give_pinned("cudaMallocHost", memory, bytes);
}

int cudaFreeHost(void* memory) {
  call here("cudaFreeHost", current_device());
  if (const int no = refused(here)) return returned(no);
  return take_back(here, memory, true);
}

int cudaHostRegister(void* memory, std::size_t bytes, unsigned int) {
  call here("cudaHostRegister", current_device());
  if (const int no = refused(here)) return returned(no);
  if (!memory || bytes == 0) return returned(cuda_invalid_value);
  if (memory_of_the_double().find(memory)) return returned(cuda_host_memory_already_registered);
  memory_of_the_double().enrol(memory, bytes, current_device());
  return cuda_success;
}

int cudaHostUnregister(void* memory) {
  call here("cudaHostUnregister", current_device());
  if (const int no = refused(here)) return returned(no);
  allocation* which = at(memory);
  if (!which || which->kind != memory_kind::registered) return returned(cuda_host_memory_not_registered);
  for (const allocation::use& use : which->uses)
    if (!use.by->done())
      engine::the().problem("cudaHostUnregister of " + memory_of_the_double().describe(*which) + " while " +
                            use.by->what + " is not done");
  memory_of_the_double().end(*which);
  return cuda_success;
}

int cudaHostGetDevicePointer(void** device_pointer, void* memory, unsigned int) {
  call here("cudaHostGetDevicePointer", current_device());
  if (const int no = refused(here)) return returned(no);
  const allocation* which = memory_of_the_double().find(memory);
  if (!which || which->kind == memory_kind::device) return returned(cuda_invalid_value);
  *device_pointer = memory;
  return cuda_success;
}

int cudaPointerGetAttributes(cuda_pointer_attributes* answer, const void* memory) {
  call here("cudaPointerGetAttributes", current_device());
  if (const int no = refused(here)) return returned(no);
  *answer = {};
  auto* const address = const_cast<void*>(memory);
  const allocation* which = memory_of_the_double().find(memory);
  if (!which || which->now == allocation::life::freed || !which->holds(reinterpret_cast<std::uintptr_t>(memory), 1)) {
    answer->type = memory_unregistered;
    answer->device = -2;
    answer->host_pointer = address;
    return cuda_success;
  }
  answer->type = which->kind == memory_kind::device ? memory_device : memory_host;
  answer->device = which->device;
  answer->device_pointer = address;
  answer->host_pointer = which->kind == memory_kind::device ? nullptr : address;
  return cuda_success;
}
