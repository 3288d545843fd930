// SPDX-License-Identifier: Apache-2.0
// libcudart's calls about streams, events and host functions.
#include "memory.hpp"
#include "streams.hpp"

using namespace gpu_double;

namespace {

int make(const char* function, void** made, unsigned flags) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  if (flags > stream_non_blocking) return returned(cuda_invalid_value);
  *made = devices_of_the_double().make_stream(current_device(), flags);
  return cuda_success;
}

int make_event(const char* function, void** made, unsigned flags) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  *made = devices_of_the_double().make_event(current_device(), flags);
  return cuda_success;
}

int record(const char* function, void* event_handle, void* stream_handle) {
  call here(function, current_device());
  if (const int no = refused(here)) return returned(no);
  stream* on = devices_of_the_double().find_stream(stream_handle, function);
  event* what = devices_of_the_double().find_event(event_handle, function);
  if (!on || !what) return returned(cuda_invalid_handle);
  if (what->device != on->device) {
    engine::the().problem(std::string(function) + " of an event of device " + std::to_string(what->device) + " on " +
                          on->name());
    return returned(cuda_invalid_handle);
  }
  const operation_ref op = new_operation(here, *on, "event " + std::to_string(what->number));
  what->last = op;
  devices_of_the_double().append(*on, op);
  return cuda_success;
}

}  // namespace

int cudaStreamCreate(void** made) {
  return make("cudaStreamCreate", made, 0);
}

int cudaStreamCreateWithFlags(void** made, unsigned int flags) {
  return make("cudaStreamCreateWithFlags", made, flags);
}

int cudaStreamCreateWithPriority(void** made, unsigned int flags, int) {
  return make("cudaStreamCreateWithPriority", made, flags);
}

// Work that is already enqueued on the stream still runs.
int cudaStreamDestroy(void* handle) {
  call here("cudaStreamDestroy", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* which = devices_of_the_double().find_stream(handle, "cudaStreamDestroy");
  if (!which || which->legacy) return returned(cuda_invalid_handle);
  which->destroyed = true;
  return cuda_success;
}

int cudaStreamSynchronize(void* handle) {
  call here("cudaStreamSynchronize", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* which = devices_of_the_double().find_stream(handle, "cudaStreamSynchronize");
  if (!which) return returned(cuda_invalid_handle);
  if (which->legacy) devices_of_the_double().append(*which, new_operation(here, *which, ""));
  const int device = which->device;
  const operation_ref last = which->last;
  engine::the().wait(here.lock(), last);
  return returned(engine::the().device_error(device));
}

int cudaStreamQuery(void* handle) {
  call here("cudaStreamQuery", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* which = devices_of_the_double().find_stream(handle, "cudaStreamQuery");
  if (!which) return returned(cuda_invalid_handle);
  const int device = which->device;
  const bool done = engine::the().poll(which->last);
  if (const int failed = engine::the().device_error(device)) return returned(failed);
  return done ? cuda_success : cuda_not_ready;
}

int cudaStreamWaitEvent(void* stream_handle, void* event_handle, unsigned int) {
  call here("cudaStreamWaitEvent", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* which = devices_of_the_double().find_stream(stream_handle, "cudaStreamWaitEvent");
  const event* what = devices_of_the_double().find_event(event_handle, "cudaStreamWaitEvent");
  if (!which || !what) return returned(cuda_invalid_handle);
  if (!what->last) return cuda_success;  // never recorded: nothing to wait for
  devices_of_the_double().append(*which, new_operation(here, *which, "event " + std::to_string(what->number)),
                                 {what->last});
  return cuda_success;
}

int cudaStreamGetFlags(void* handle, unsigned int* flags) {
  call here("cudaStreamGetFlags", current_device());
  if (const int no = refused(here)) return returned(no);
  const stream* which = devices_of_the_double().find_stream(handle, "cudaStreamGetFlags");
  if (!which) return returned(cuda_invalid_handle);
  *flags = which->flags;
  return cuda_success;
}

int cudaStreamGetDevice(void* handle, int* device) {
  call here("cudaStreamGetDevice", current_device());
  if (const int no = refused(here)) return returned(no);
  const stream* which = devices_of_the_double().find_stream(handle, "cudaStreamGetDevice");
  if (!which) return returned(cuda_invalid_handle);
  *device = which->device;
  return cuda_success;
}

int cudaLaunchHostFunc(void* handle, cuda_host_function function, void* argument) {
  call here("cudaLaunchHostFunc", current_device());
  if (const int no = refused(here)) return returned(no);
  stream* which = devices_of_the_double().find_stream(handle, "cudaLaunchHostFunc");
  if (!which) return returned(cuda_invalid_handle);
  if (!function) return returned(cuda_invalid_value);
  const operation_ref op = new_operation(here, *which, "");
  if (here.is(double_fail_later))
    op->body = [device = op->device, code = here.planted().code] { engine::the().device_error(device) = code; };
  else
    op->host = [function, argument] { function(argument); };
  devices_of_the_double().append(*which, op);
  return cuda_success;
}

int cudaEventCreate(void** made) {
  return make_event("cudaEventCreate", made, 0);
}

int cudaEventCreateWithFlags(void** made, unsigned int flags) {
  return make_event("cudaEventCreateWithFlags", made, flags);
}

int cudaEventRecord(void* event_handle, void* stream_handle) {
  return record("cudaEventRecord", event_handle, stream_handle);
}

int cudaEventRecordWithFlags(void* event_handle, void* stream_handle, unsigned int) {
  return record("cudaEventRecordWithFlags", event_handle, stream_handle);
}

int cudaEventQuery(void* handle) {
  call here("cudaEventQuery", current_device());
  if (const int no = refused(here)) return returned(no);
  const event* what = devices_of_the_double().find_event(handle, "cudaEventQuery");
  if (!what) return returned(cuda_invalid_handle);
  const int device = what->device;
  const bool done = engine::the().poll(what->last);
  if (const int failed = engine::the().device_error(device)) return returned(failed);
  return done ? cuda_success : cuda_not_ready;
}

int cudaEventSynchronize(void* handle) {
  call here("cudaEventSynchronize", current_device());
  if (const int no = refused(here)) return returned(no);
  const event* what = devices_of_the_double().find_event(handle, "cudaEventSynchronize");
  if (!what) return returned(cuda_invalid_handle);
  const int device = what->device;
  const operation_ref last = what->last;
  engine::the().wait(here.lock(), last);
  return returned(engine::the().device_error(device));
}

int cudaEventDestroy(void* handle) {
  call here("cudaEventDestroy", current_device());
  if (const int no = refused(here)) return returned(no);
  event* what = devices_of_the_double().find_event(handle, "cudaEventDestroy");
  if (!what) return returned(cuda_invalid_handle);
  what->destroyed = true;
  return cuda_success;
}

int cudaEventElapsedTime(float* milliseconds, void* start, void* end) {
  call here("cudaEventElapsedTime", current_device());
  if (const int no = refused(here)) return returned(no);
  const event* from = devices_of_the_double().find_event(start, "cudaEventElapsedTime");
  const event* to = devices_of_the_double().find_event(end, "cudaEventElapsedTime");
  if (!from || !to || !from->last || !to->last) return returned(cuda_invalid_handle);
  if (((from->flags | to->flags) & event_disable_timing) != 0) return returned(cuda_invalid_handle);
  if (!from->last->done() || !to->last->done()) return cuda_not_ready;
  *milliseconds = std::chrono::duration<float, std::milli>(to->last->done_at - from->last->done_at).count();
  return cuda_success;
}
