// SPDX-License-Identifier: Apache-2.0
// libcudart's copies and fills. A copy reads its source when it runs, not when it was enqueued. Copies from and to
// pageable memory are as late as others: CUDA promises no more.
#include "memory.hpp"
#include "streams.hpp"

#include <cstring>

using namespace gpu_double;

namespace {

struct rows {
  std::size_t width = 0;
  std::size_t height = 1;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};

touch bytes_of(const void* memory, const rows& shape, std::size_t pitch, bool writes) {
  return {reinterpret_cast<std::uintptr_t>(memory), shape.width, writes, shape.height, pitch};
}

bool on_device(const void* memory) {
  const allocation* found = memory_of_the_double().find(memory);
  return found && found->kind == memory_kind::device;
}

// Reports a copy that the driver would refuse, or that would do harm.
bool is_bad(const char* function, const touch& what) {
  const allocation* in = memory_of_the_double().find(reinterpret_cast<const void*>(what.begin));
  if (!in || what.span() == 0) return false;
  if (in->now != allocation::life::freed && in->holds(what.begin, what.span())) return false;
  engine::the().problem(std::string(function) + " of " + std::to_string(what.span()) + " bytes " +
                        (in->now == allocation::life::freed ? "uses, after it was freed, " : "goes over the end of ") +
                        memory_of_the_double().describe(*in));
  return true;
}

bool is_bad_direction(const char* function, const void* to, const void* from, int kind) {
  if (kind == by_address) return false;
  const bool to_device = kind == host_to_device || kind == device_to_device;
  const bool from_device = kind == device_to_host || kind == device_to_device;
  if (kind >= 0 && kind < by_address && to_device == on_device(to) && from_device == on_device(from)) return false;
  engine::the().problem(std::string(function) + " of kind " + std::to_string(kind) + " to " +
                        (on_device(to) ? "device" : "host") + " memory from " + (on_device(from) ? "device" : "host") +
                        " memory");
  return true;
}

void set_fault(const operation_ref& op, const call& here) {
  if (here.is(double_fail_later))
    op->body = [device = op->device, code = here.planted().code] { engine::the().device_error(device) = code; };
}

int enqueue(call& here, stream& on, const operation_ref& op, bool wait) {
  set_fault(op, here);
  const int device = on.device;
  devices_of_the_double().append(on, op);
  if (!wait) return cuda_success;
  engine::the().wait(here.lock(), op);
  return returned(engine::the().device_error(device));
}

int copy(const char* function, void* to, const void* from, const rows& shape, int kind, void* stream_handle,
         bool host_waits) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  stream* on = devices_of_the_double().find_stream(stream_handle, function);
  if (!on) return returned(cuda_invalid_handle);
  if (shape.height > 1 && (shape.to_pitch < shape.width || shape.from_pitch < shape.width))
    return returned(12);  // cudaErrorInvalidPitchValue
  if (shape.width == 0 || shape.height == 0) return cuda_success;
  if (!to || !from) return returned(cuda_invalid_value);
  if (is_bad_direction(function, to, from, kind)) return returned(cuda_invalid_value);
  const touch writes = bytes_of(to, shape, shape.to_pitch, true);
  const touch reads = bytes_of(from, shape, shape.from_pitch, false);
  if (is_bad(function, writes) || is_bad(function, reads)) return returned(cuda_invalid_value);
  const operation_ref op = new_operation(here, *on, std::to_string(shape.width * shape.height) + " bytes");
  op->accesses = {writes, reads};
  op->body = [to, from, shape] {
    for (std::size_t row = 0; row < shape.height; ++row)
      std::memmove(static_cast<char*>(to) + row * shape.to_pitch,
                   static_cast<const char*>(from) + row * shape.from_pitch, shape.width);
  };
  // Host-to-host copies finish before the call returns, asynchronous or not. Device-to-device copies do not,
  // synchronous or not.
  const bool devices_only = on_device(to) && on_device(from);
  const bool hosts_only = !on_device(to) && !on_device(from);
  return enqueue(here, *on, op, hosts_only || (host_waits && !devices_only));
}

int fill(const char* function, void* to, int value, const rows& shape, void* stream_handle, bool host_waits) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  stream* on = devices_of_the_double().find_stream(stream_handle, function);
  if (!on) return returned(cuda_invalid_handle);
  if (shape.width == 0 || shape.height == 0) return cuda_success;
  if (!memory_of_the_double().find(to)) {
    engine::the().problem(std::string(function) + " of memory that no device reaches");
    return returned(cuda_invalid_value);
  }
  const touch writes = bytes_of(to, shape, shape.to_pitch, true);
  if (is_bad(function, writes)) return returned(cuda_invalid_value);
  const operation_ref op = new_operation(here, *on, std::to_string(shape.width * shape.height) + " bytes");
  op->accesses = {writes};
  op->body = [to, value, shape] {
    for (std::size_t row = 0; row < shape.height; ++row)
      std::memset(static_cast<char*>(to) + row * shape.to_pitch, value, shape.width);
  };
  return enqueue(here, *on, op, host_waits && !on_device(to));
}

}  // namespace

int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  return copy("cudaMemcpy", to, from, {.width = bytes}, kind, nullptr, true);
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  return copy("cudaMemcpyAsync", to, from, {.width = bytes}, kind, stream, false);
}

int cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                 std::size_t height, int kind) {
  return copy("cudaMemcpy2D", to, from, {width, height, to_pitch, from_pitch}, kind, nullptr, true);
}

int cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                      std::size_t height, int kind, void* stream) {
  return copy("cudaMemcpy2DAsync", to, from, {width, height, to_pitch, from_pitch}, kind, stream, false);
}

int cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, void* stream) {
  return copy("cudaMemcpyPeerAsync", to, from, {.width = bytes}, device_to_device, stream, false);
}

int cudaMemset(void* to, int value, std::size_t bytes) {
  return fill("cudaMemset", to, value, {.width = bytes}, nullptr, true);
}

int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
  return fill("cudaMemsetAsync", to, value, {.width = bytes}, stream, false);
}

int cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, void* stream) {
  return fill("cudaMemset2DAsync", to, value, {width, height, pitch, pitch}, stream, false);
}
