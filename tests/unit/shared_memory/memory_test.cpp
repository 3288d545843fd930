// SPDX-License-Identifier: Apache-2.0
// A rank that has no memory left can still end its group. This program's operator new fails on demand.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <sanitized.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.shared_memory;

using namespace shardmesh;

#ifndef SHARDMESH_TEST_SANITIZED
namespace {
thread_local bool has_no_memory = false;
}

void* operator new(std::size_t size) {
  void* const memory = has_no_memory ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
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

TEST_CASE("a rank without memory poisons its group with its error's code") {
#ifdef SHARDMESH_TEST_SANITIZED
  SKIP("the sanitizer has an operator new of its own");
#else
  const watchdog dog{std::chrono::seconds(60)};
  const auto group = shared_memory_group::make(2).value();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::optional<shared_memory_communicator> zero, one;
  std::jthread other([&] { one = shared_memory_communicator::join(group.token(), 1, {.deadline = deadline}).value(); });
  zero = shared_memory_communicator::join(group.token(), 0, {.deadline = deadline}).value();
  other.join();
  const error reason = fail(errc::io, std::string(1000, 'x'));
  has_no_memory = true;
  zero->abort(reason);
  has_no_memory = false;
  CHECK(zero->status().error().code == errc::io);
  const error told = one->status().error();
  CHECK(told.code == errc::io);
  CHECK(told.ranks == std::vector<std::int32_t>{0});
  CHECK(one->all_gather({}, {.deadline = deadline}).error() == told);
#endif
}
