// SPDX-License-Identifier: Apache-2.0
#include "interpreter.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace bindings {

// One call that runs without the interpreter's lock.
struct running {
  std::function<void()> cancel;
  bool is_overtaken = false;
};

namespace {

// The running calls of this process. Never destroyed: threads use it while the program ends.
struct all_running {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<running*> calls;
  std::optional<std::thread::id> ending;  // the thread that ends the program, once it does
};

all_running& all() {
  static all_running* const made = [] {
    // A child has none of the threads, and must not inherit a locked mutex.
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     all().calls.clear();
                     all().ending.reset();
                     all().mutex.unlock();
                   });
    return new all_running;
  }();
  return *made;
}

thread_local running* current = nullptr;

[[noreturn]] void stop_for_ever() {
  for (;;) ::pause();
}

// If a thread asks for the lock too late, the interpreter ends it by forced unwinding, which `catch (...)` catches.
template <class Take>
void take_lock(const Take& take) {
  try {
    take();
  } catch (...) {
    stop_for_ever();
  }
}

// Registers a call; returns whether the thread may make it.
bool add(running* call) {
  const std::lock_guard lock(all().mutex);
  if (all().ending && *all().ending != std::this_thread::get_id()) return false;
  all().calls.push_back(call);
  return true;
}

// Called with the lock, which other threads need.
[[noreturn]] void let_go_and_stop() {
  PyEval_SaveThread();
  stop_for_ever();
}

// Removes a call; returns whether the thread may return to Python.
bool remove(running* call) {
  const std::lock_guard lock(all().mutex);
  std::erase(all().calls, call);
  all().changed.notify_all();
  return !call->is_overtaken;
}

}  // namespace

released::released(std::function<void()> cancel) : call_(new running{std::move(cancel)}), outer_(current) {
  if (!add(call_)) let_go_and_stop();
  current = call_;
  state_ = PyEval_SaveThread();
}

released::~released() {
  const std::unique_ptr<running> call(call_);
  current = outer_;
  if (!remove(call.get())) stop_for_ever();
  take_lock([this] { PyEval_RestoreThread(state_); });
}

acquired::acquired() {
  if (Py_IsInitialized() == 0) stop_for_ever();
  take_lock([this] { state_ = PyGILState_Ensure(); });
}

acquired::~acquired() {
  PyGILState_Release(state_);
}

void foreign_call::begin() {
  call_ = new running;
  if (!add(call_)) let_go_and_stop();
}

void foreign_call::end() {
  const std::unique_ptr<running> call(std::exchange(call_, nullptr));
  if (!remove(call.get())) let_go_and_stop();
}

bool is_overtaken() {
  if (current == nullptr) return false;
  const std::lock_guard lock(all().mutex);
  return current->is_overtaken;
}

void end_running_work() {
  PyThreadState* const state = PyEval_SaveThread();
  {
    std::unique_lock lock(all().mutex);
    all().ending = std::this_thread::get_id();
    const std::vector<running*> calls = all().calls;
    for (running* call : calls) {
      call->is_overtaken = true;
      if (call->cancel) call->cancel();
    }
    all().changed.wait_for(lock, std::chrono::seconds(10), [&] {
      return std::ranges::none_of(
          calls, [](running* call) { return std::ranges::find(all().calls, call) != all().calls.end(); });
    });
  }
  take_lock([state] { PyEval_RestoreThread(state); });
}

}  // namespace bindings
