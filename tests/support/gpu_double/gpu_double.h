// SPDX-License-Identifier: Apache-2.0
// The C ABI with which a test steers the double of libcudart and libnccl and reads its findings. The functions that it
// replaces are in cuda_abi.h and nccl_abi.h. engine.hpp implements it; docs/gpu_double.md explains its purpose.
#pragma once
#include <cstddef>
#include <cstdint>

#define GPU_DOUBLE_API extern "C" __attribute__((visibility("default")))

/// Resets everything: memory, streams, events, communicators, problems, and injected faults. Pending work is dropped.
/// Afterwards there are eight devices, the first one is current in this thread, and `seed` determines the order of
/// work. Call it while no other thread is inside the double.
GPU_DOUBLE_API void double_reset(std::uint64_t seed);
/// Sets the number of devices. 0: every call answers as on a machine without a device (cudaErrorNoDevice).
GPU_DOUBLE_API void double_set_devices(int count);
/// Sets each device's memory; allocating more returns cudaErrorMemoryAllocation.
GPU_DOUBLE_API void double_set_memory(std::size_t bytes_per_device);
/// 1 (the default): work also runs spontaneously, a little later. 0: work runs only inside calls, and the same program
/// with the same seed sees the same order of work.
GPU_DOUBLE_API void double_set_background(int on);

/// The number of errors of the program under test: use after free, bytes outside an allocation, unordered accesses,
/// mismatching collectives, ... The text has one line per error and is valid until this thread asks again.
GPU_DOUBLE_API int double_problems(void);
GPU_DOUBLE_API const char* double_problem_text(void);
/// The number of leaks: memory, streams, events, libraries, communicators, and registrations that were not released.
GPU_DOUBLE_API int double_leaks(void);
GPU_DOUBLE_API const char* double_leak_text(void);
/// The enqueued, unfinished operations, and what they wait for: shows why a program hangs.
GPU_DOUBLE_API const char* double_pending_text(void);
/// The number of calls of a function of libcudart or libnccl, such as "cudaMallocAsync", since the reset.
GPU_DOUBLE_API std::int64_t double_calls(const char* function);
/// The number of calls, of any function, by forked children of this program: a device and its library belong to one
/// process.
GPU_DOUBLE_API std::int64_t double_calls_of_children(void);

enum double_action {
  double_fail = 1,  // the call returns `code` and does nothing
  double_fail_later =
      2,            // the call succeeds, the work fails when it runs: the error of the device or communicator is `code`
  double_hang = 3,  // the work never finishes (aborting its communicator ends it)
  double_lose_rank = 4,  // the calling rank is dead from here on; other ranks get error `code`, or nothing (0)
};
/// Plants a fault in the nth (1: the next) call of `function` by `who`: a device for libcudart, a rank for libnccl, or
/// -1 for any.
GPU_DOUBLE_API void double_inject(const char* function, int who, int nth, int action, int code);
/// Resumes the work that `double_hang` blocks.
GPU_DOUBLE_API void double_release(void);

/// Announces that a host function, which acts as a kernel, is about to read or write these bytes. They are checked like
/// a copy's bytes.
GPU_DOUBLE_API void double_touch(const void* memory, std::size_t bytes, int writes);

/// The host's stand-in for a kernel: it gets copies of the arguments.
using double_kernel = void (*)(void* const* arguments, unsigned int blocks, unsigned int threads);
/// Defines, until the reset, the kernel `name` of every library that cudaLibraryLoadData loads. Launches run `body` as
/// a host function on their stream. Code is loaded only if it begins with `double_code`.
GPU_DOUBLE_API void double_define_kernel(const char* name, const std::size_t* argument_bytes, std::size_t arguments,
                                         double_kernel body);
inline constexpr char double_code[] = "code of the double";
