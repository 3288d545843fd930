// SPDX-License-Identifier: Apache-2.0
// The C ABI by which tests steer the double (gpu_double.h).
#include "call.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "nccl_world.hpp"
#include "streams.hpp"

using namespace gpu_double;

namespace {

const char* keep(std::string text) {
  thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

std::vector<std::string> leaks() {
  std::vector<std::string> found;
  for (const auto& [at, which] : memory_of_the_double().all())
    if (!which.given_back && which.now != allocation::life::freed)
      found.push_back(memory_of_the_double().describe(which));
  for (const auto& each : devices_of_the_double().streams())
    if (!each->destroyed && !each->legacy) found.push_back(each->name());
  for (const auto& each : devices_of_the_double().events())
    if (!each->destroyed) found.push_back("event " + std::to_string(each->number));
  for (const std::string& each : communicator_leaks()) found.push_back(each);
  for (const std::string& each : library_leaks()) found.push_back(each);
  return found;
}

}  // namespace

void double_reset(std::uint64_t seed) {
  engine::the().reset(seed);
  const engine_lock held = engine::the().lock();
  call::reset();
  reset_communicators();
  devices_of_the_double().reset();
  memory_of_the_double().reset();
  reset_kernels();
  current_device() = 0;
  last_error() = 0;
}

void double_set_devices(int count) {
  const engine_lock held = engine::the().lock();
  devices_of_the_double().count = count;
}

void double_set_memory(std::size_t bytes_per_device) {
  const engine_lock held = engine::the().lock();
  memory_of_the_double().set_limit(bytes_per_device);
}

void double_set_background(int on) {
  const engine_lock held = engine::the().lock();
  engine::the().set_background(on != 0);
  engine::the().changed();
}

int double_problems() {
  const engine_lock held = engine::the().lock();
  memory_of_the_double().look_at_patterns();
  return static_cast<int>(engine::the().problems().size());
}

const char* double_problem_text() {
  const engine_lock held = engine::the().lock();
  memory_of_the_double().look_at_patterns();
  std::string text;
  for (const std::string& each : engine::the().problems()) text += each + "\n";
  return keep(std::move(text));
}

int double_leaks() {
  const engine_lock held = engine::the().lock();
  return static_cast<int>(leaks().size());
}

const char* double_leak_text() {
  const engine_lock held = engine::the().lock();
  std::string text;
  for (const std::string& each : leaks()) text += each + "\n";
  return keep(std::move(text));
}

const char* double_pending_text() {
  const engine_lock held = engine::the().lock();
  return keep(engine::the().pending_text());
}

std::int64_t double_calls(const char* function) {
  const engine_lock held = engine::the().lock();
  return call::count(function);
}

std::int64_t double_calls_of_children() {
  return call::count_of_children();
}

void double_inject(const char* function, int who, int nth, int action, int code) {
  const engine_lock held = engine::the().lock();
  call::plant(function, who, nth, {action, code});
}

void double_release() {
  const engine_lock held = engine::the().lock();
  engine::the().release_hanging();
  release_hanging_launches();
}

void double_touch(const void* touched, std::size_t bytes, int writes) {
  const engine_lock held = engine::the().lock();
  operation* const by = engine::current_host_function();
  if (!by) {
    const allocation* in = memory_of_the_double().find(touched);
    if (in && in->kind == memory_kind::device)
      engine::the().problem("the host touches " + memory_of_the_double().describe(*in));
    return;
  }
  const std::vector<touch> accesses{{reinterpret_cast<std::uintptr_t>(touched), bytes, writes != 0}};
  memory_of_the_double().allows(*by, accesses);
  memory_of_the_double().note_order(by->shared_from_this(), accesses);
}
