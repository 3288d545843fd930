// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <new>
#include <string>
#include <vector>

namespace gpu_double {
namespace {

struct planted_fault {
  std::string function;
  int who;
  int nth;
  fault what;
};

struct call_book {
  std::map<std::string, std::int64_t, std::less<>> counts;
  std::vector<planted_fault> faults;
};

call_book& book() {
  static call_book* const made = new call_book;
  return *made;
}

// The count is in memory that forked children share.
std::atomic<std::int64_t>& count_of_children() {
  static auto* const shared =
      new (::mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          std::atomic<std::int64_t>(0);
  return *shared;
}

// Counts before it locks: a fork may have copied the lock in its locked state.
engine_lock lock_after_counting() {
  static const pid_t maker = ::getpid();
  std::atomic<std::int64_t>& children = count_of_children();
  if (::getpid() != maker) ++children;
  return engine::the().lock();
}

fault take_fault(std::string_view function, int who) {
  fault taken;
  std::erase_if(book().faults, [&](planted_fault& each) {
    if (each.function != function || (each.who != -1 && each.who != who) || --each.nth > 0) return false;
    taken = each.what;
    return true;
  });
  return taken;
}

}  // namespace

call::call(const char* function, int who) : lock_(lock_after_counting()), function_(function) {
  ++book().counts[function];
  fault_ = take_fault(function, who);
}

std::optional<int> call::failed_at_once() const {
  if (fault_.action != double_fail) return std::nullopt;
  return fault_.code;
}

void call::reset() {
  book() = {};
}

std::int64_t call::count_of_children() {
  return gpu_double::count_of_children();
}

std::int64_t call::count(std::string_view function) {
  const auto found = book().counts.find(function);
  return found == book().counts.end() ? 0 : found->second;
}

void call::plant(std::string function, int who, int nth, fault what) {
  book().faults.push_back({std::move(function), who, nth, what});
}

}  // namespace gpu_double
