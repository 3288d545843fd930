// SPDX-License-Identifier: Apache-2.0
// The C ABI by which a test steers the double of libcudart and libnccl and asks what it saw. The functions that it
// stands in for are in cuda_abi.h and nccl_abi.h. Not here: how it works (engine.hpp), what it is for
// (docs/gpu_double.md).
#pragma once
#include <cstddef>
#include <cstdint>

#define GPU_DOUBLE_API extern "C" __attribute__((visibility("default")))

/// Forgets everything: memory, streams, events, communicators, problems, injected faults; work that is pending is
/// dropped. Eight devices, the first one current in this thread, and the order of work that follows from `seed`. Call
/// it while no other thread is inside.
GPU_DOUBLE_API void double_reset(std::uint64_t seed);
/// 0: every call answers as on a machine without a device (cudaErrorNoDevice).
GPU_DOUBLE_API void double_set_devices(int count);
/// What each device has; more is cudaErrorMemoryAllocation.
GPU_DOUBLE_API void double_set_memory(std::size_t bytes_per_device);
/// 1: work also goes on by itself, a little later (from the start). 0: only when a call lets it, and then the same
/// program sees the same order of work for the same seed.
GPU_DOUBLE_API void double_set_background(int on);

/// What the program under test did wrong: use after free, bytes outside of an allocation, accesses that nothing orders,
/// collectives that do not fit together, ... The text is one line for each, valid until this thread asks again.
GPU_DOUBLE_API int double_problems(void);
GPU_DOUBLE_API const char* double_problem_text(void);
/// What was made and not given back: memory, streams, events, communicators, registrations.
GPU_DOUBLE_API int double_leaks(void);
GPU_DOUBLE_API const char* double_leak_text(void);
/// What is enqueued and not done, and why not: for finding what a program hangs on.
GPU_DOUBLE_API const char* double_pending_text(void);
/// How often a function of libcudart or libnccl was called since the reset, e.g. "cudaMallocAsync".
GPU_DOUBLE_API std::int64_t double_calls(const char* function);
/// How many calls forked children of this program made, of any function: a device and its library belong to one
/// process.
GPU_DOUBLE_API std::int64_t double_calls_of_children(void);

enum double_action {
  double_fail = 1,  // the call returns `code` and does nothing
  double_fail_later =
      2,            // the call succeeds, the work fails when it runs: the device's, or communicator's, error is `code`
  double_hang = 3,  // the work is never done (an abort of its communicator ends it)
  double_lose_rank = 4,  // the rank that calls is dead from here on; other ranks learn `code` of it, or nothing (0)
};
/// What happens to the nth (1: the next) call of `function` by `who`: a device for libcudart, a rank for libnccl, -1
/// for any of them.
GPU_DOUBLE_API void double_inject(const char* function, int who, int nth, int action, int code);
/// Ends the hanging of work that `double_hang` holds.
GPU_DOUBLE_API void double_release(void);

/// Said by a host function that plays a kernel: it is about to read or write these bytes. Checked like a copy's bytes.
GPU_DOUBLE_API void double_touch(const void* memory, std::size_t bytes, int writes);
