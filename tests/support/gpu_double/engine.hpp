// SPDX-License-Identifier: Apache-2.0
// The engine of the double: enqueued work, its dependencies, and the choice of what runs next. Work is a graph, not a
// set of queues: an operation names its predecessors (the one before it in its stream, an event's). An operation
// without unfinished predecessors may run at any time until somebody looks for its result, in any order. Edges that
// CUDA calls make are in cudart_*.cpp, memory is in memory.hpp, and the meeting of ranks is in nccl_*.cpp.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace gpu_double {

struct operation;
using operation_ref = std::shared_ptr<operation>;
using engine_lock = std::unique_lock<std::mutex>;

/// The bytes that an operation reads or writes: rows, `pitch` bytes apart.
struct touch {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool writes = false;
  std::size_t rows = 1;
  std::size_t pitch = 0;
  std::size_t part = 0;  // the operation's part: a part orders its own accesses

  std::size_t span() const { return bytes == 0 || rows == 0 ? 0 : (rows - 1) * pitch + bytes; }
};

/// The operations known to have happened before an operation: for each stream, their number. Two operations of which
/// neither knows the other are unordered.
using vector_clock = std::vector<std::uint32_t>;

struct operation : std::enable_shared_from_this<operation> {
  enum class stage { waiting, ready, parked, running, done };

  std::string what;
  int device = 0;
  std::size_t stream = 0;  // the stream's number; `turn` is the operation's number in it
  std::uint32_t turn = 0;
  vector_clock before;

  std::vector<touch> accesses;
  std::function<void()> body;  // runs at once, under the lock
  std::function<void()> host;  // runs without the lock, on its own thread
  std::function<void()>
      arrive;  // for work that waits for more than `after`: called once that is done; `engine::release` continues it
  bool hangs = false;

  stage now = stage::waiting;
  std::size_t missing = 0;
  std::vector<operation_ref> after;
  std::vector<operation_ref> followers;
  std::chrono::steady_clock::time_point done_at;

  bool done() const { return now == stage::done; }
};

/// The engine's behaviour for a while; redrawn now and then, so that one test meets all of them.
struct temper {
  unsigned early = 0;   // per cent: enqueuing an operation lets something run
  unsigned narrow = 0;  // per cent: a waiter runs only what it waits for
};

class engine {
 public:
  static engine& the();

  engine_lock lock() { return engine_lock(mutex_); }
  void reset(std::uint64_t seed);
  void set_background(bool on) { background_ = on; }

  /// Adds an operation that comes after `after`; finished ones are ignored.
  void enqueue(const operation_ref& op, const std::vector<operation_ref>& after);
  /// Lets an operation that has arrived finish: its body runs when it is chosen.
  void release(const operation_ref& op);
  /// Resumes the operations that `hangs` blocks.
  void release_hanging();

  void wait(engine_lock& lock, const operation_ref& op);
  /// Perhaps lets something run; returns whether `op` is done.
  bool poll(const operation_ref& op);
  /// Waits until `true_now` returns true, and lets work run meanwhile.
  void wait_until(engine_lock& lock, const std::function<bool()>& true_now);
  std::vector<operation_ref> pending_on(int device) const;
  void changed() { changed_.notify_all(); }

  /// Registers work that is not even enqueued yet, under its future enqueuer (for example, a communicator's launch). It
  /// runs before long.
  void defer(const void* who, std::function<void()> work);
  void run_deferred(const void* who);
  void drop_deferred(const void* who) { deferred_.erase(who); }

  /// Records that the host saw `op` done: everything that it enqueues from now on comes after `op`.
  void seen(const operation& op);
  bool known(const operation& op) const;
  /// Whether one of the two operations comes after the other.
  static bool ordered(const operation& a, const operation& b);
  std::size_t new_stream_number() { return streams_++; }

  /// 0 to below - 1.
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  bool chance(unsigned per_cent) { return draw(100) < per_cent; }

  void problem(std::string text);
  const std::vector<std::string>& problems() const { return problems_; }
  std::string pending_text() const;

  /// The error that a device keeps after its work failed.
  int& device_error(int device) { return device_errors_[device]; }
  /// The operation whose host function this thread runs.
  static operation*& current_host_function();

 private:
  engine();
  bool step(const operation_ref* wanted, bool narrow);
  void run(const operation_ref& op);
  void finish(const operation_ref& op);
  void make_ready(const operation_ref& op);
  void run_host(operation_ref op);
  void host_thread();
  void background_thread();
  void maybe_change_temper();

  std::mutex mutex_;
  std::condition_variable changed_;    // signalled on every change
  std::condition_variable host_work_;  // for idle host threads
  std::mt19937_64 random_;
  temper temper_;
  unsigned until_next_temper_ = 0;
  bool background_ = true;

  std::set<operation_ref> pending_;
  std::vector<operation_ref> ready_;
  std::vector<operation_ref> hanging_;
  std::map<const void*, std::function<void()>> deferred_;
  std::deque<operation_ref> host_queue_;
  std::size_t idle_hosts_ = 0;
  std::size_t running_hosts_ = 0;

  std::size_t streams_ = 0;
  vector_clock turns_;  // the last operation of each stream
  vector_clock known_;  // finished operations that the host has seen
  std::map<int, int> device_errors_;
  std::vector<std::string> problems_;
};

}  // namespace gpu_double
