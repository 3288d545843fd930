// SPDX-License-Identifier: Apache-2.0
// Counts all allocations of the program, and fails on demand. Include it in one file of a test program, after all other
// headers. The sanitizers have their own operators, so nothing is counted there and dependent tests skip themselves.
#pragma once
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "sanitized.hpp"

namespace counted_new {
inline thread_local std::int64_t calls = 0, bytes = 0;  // of this thread
inline std::atomic<std::int64_t> all_bytes = 0;         // of all threads
inline thread_local bool has_no_memory = false;         // operator new throws in this thread
}  // namespace counted_new

#ifdef SHARDMESH_TEST_SANITIZED
#define SKIP_WHERE_NOTHING_IS_COUNTED() SKIP("the sanitizer's own operator new counts nothing")
#else
#define SKIP_WHERE_NOTHING_IS_COUNTED() static_cast<void>(0)

void* operator new(std::size_t size) {
  ++counted_new::calls;
  counted_new::bytes += static_cast<std::int64_t>(size);
  counted_new::all_bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  if (void* const memory = counted_new::has_no_memory ? nullptr : std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif
