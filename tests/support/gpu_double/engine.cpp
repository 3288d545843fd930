// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include "memory.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace gpu_double {
namespace {

void merge(vector_clock& into, const vector_clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void set_turn(vector_clock& clock, std::size_t stream, std::uint32_t turn) {
  if (clock.size() <= stream) clock.resize(stream + 1);
  clock[stream] = std::max(clock[stream], turn);
}

bool knows(const vector_clock& clock, const operation& op) {
  return op.stream < clock.size() && clock[op.stream] >= op.turn;
}

}  // namespace

// Never destroyed: unjoined threads use it until the process ends.
engine& engine::the() {
  static engine* const made = new engine;
  return *made;
}

engine::engine() {
  std::thread([this] { background_thread(); }).detach();
}

operation*& engine::current_host_function() {
  thread_local operation* current = nullptr;
  return current;
}

void engine::reset(std::uint64_t seed) {
  engine_lock held(mutex_);
  host_queue_.clear();
  changed_.wait(held, [this] { return running_hosts_ == 0; });
  for (const operation_ref& op : pending_) {  // they reference each other
    op->after.clear();
    op->followers.clear();
    op->body = nullptr;
    op->host = nullptr;
    op->arrive = nullptr;
    op->now = operation::stage::done;
  }
  pending_.clear();
  ready_.clear();
  hanging_.clear();
  deferred_.clear();
  random_.seed(seed);
  until_next_temper_ = 0;
  background_ = true;
  streams_ = 0;
  turns_.clear();
  known_.clear();
  device_errors_.clear();
  problems_.clear();
}

void engine::maybe_change_temper() {
  if (until_next_temper_ > 0) {
    --until_next_temper_;
    return;
  }
  until_next_temper_ = 32 + static_cast<unsigned>(draw(64));
  constexpr unsigned earlies[] = {0, 0, 10, 40, 95};
  constexpr unsigned narrows[] = {100, 60, 60, 20, 0};
  temper_ = {earlies[draw(5)], narrows[draw(5)]};
}

void engine::enqueue(const operation_ref& op, const std::vector<operation_ref>& after) {
  maybe_change_temper();
  op->before = known_;
  for (const operation_ref& other : after) {
    if (!other || other == op) continue;
    merge(op->before, other->before);
    set_turn(op->before, other->stream, other->turn);
    if (other->done() || std::ranges::find(op->after, other) != op->after.end()) continue;
    op->after.push_back(other);
    other->followers.push_back(op);
  }
  if (turns_.size() <= op->stream) turns_.resize(op->stream + 1);
  op->turn = ++turns_[op->stream];
  set_turn(op->before, op->stream, op->turn);
  op->missing = op->after.size();
  pending_.insert(op);
  memory_of_the_double().note_order(op, op->accesses);
  if (op->missing == 0) make_ready(op);
  if (chance(temper_.early))
    for (std::uint64_t many = 1 + draw(4); many > 0 && step(nullptr, false); --many) {
    }
  changed_.notify_all();
}

void engine::make_ready(const operation_ref& op) {
  if (op->hangs) {
    op->now = operation::stage::parked;
    hanging_.push_back(op);
  } else if (op->arrive) {
    op->now = operation::stage::parked;
    const std::function<void()> arrive = std::move(op->arrive);
    op->arrive = nullptr;
    arrive();
  } else {
    op->now = operation::stage::ready;
    ready_.push_back(op);
  }
}

void engine::release(const operation_ref& op) {
  if (op->now != operation::stage::parked) return;
  op->now = operation::stage::ready;
  ready_.push_back(op);
  changed_.notify_all();
}

void engine::release_hanging() {
  const std::vector<operation_ref> held = std::exchange(hanging_, {});
  for (const operation_ref& op : pending_) op->hangs = false;
  for (const operation_ref& op : held) make_ready(op);
  changed_.notify_all();
}

void engine::run(const operation_ref& op) {
  if (op->host) {
    op->now = operation::stage::running;
    run_host(op);
    return;
  }
  op->now = operation::stage::running;
  if (memory_of_the_double().allows(*op) && op->body && device_error(op->device) == 0) op->body();
  finish(op);
}

void engine::finish(const operation_ref& op) {
  op->now = operation::stage::done;
  op->done_at = std::chrono::steady_clock::now();
  op->body = nullptr;
  op->host = nullptr;
  op->after.clear();
  const std::vector<operation_ref> followers = std::exchange(op->followers, {});
  pending_.erase(op);
  for (const operation_ref& follower : followers) {
    std::erase(follower->after, op);
    if (--follower->missing == 0) make_ready(follower);
  }
  changed_.notify_all();
}

// Ready operations that must run before `wanted` can. `busy` is set if one of these is running.
static std::vector<operation_ref> needed_for(const operation_ref& wanted, bool& busy) {
  std::vector<operation_ref> found;
  std::vector<operation_ref> look{wanted};
  std::set<const operation*> seen;
  while (!look.empty()) {
    const operation_ref op = look.back();
    look.pop_back();
    if (!seen.insert(op.get()).second) continue;
    if (op->now == operation::stage::ready) found.push_back(op);
    if (op->now == operation::stage::running) busy = true;
    look.insert(look.end(), op->after.begin(), op->after.end());
  }
  return found;
}

// Runs one operation. With `narrow`, it chooses one that `wanted` needs. If none of those is ready or running, it
// chooses any: `wanted` may wait for a message of another rank.
bool engine::step(const operation_ref* wanted, bool narrow) {
  if (ready_.empty()) {
    if (deferred_.empty()) return false;
    run_deferred(std::next(deferred_.begin(), static_cast<std::ptrdiff_t>(draw(deferred_.size())))->first);
    return true;
  }
  operation_ref chosen;
  if (narrow && wanted) {
    bool busy = false;
    const std::vector<operation_ref> needed = needed_for(*wanted, busy);
    if (!needed.empty()) chosen = needed[draw(needed.size())];
    if (needed.empty() && busy) return false;
  }
  if (!chosen) chosen = ready_[draw(ready_.size())];
  std::erase(ready_, chosen);
  run(chosen);
  return true;
}

void engine::wait(engine_lock& lock, const operation_ref& op) {
  if (!op) return;
  maybe_change_temper();
  const bool narrow = chance(temper_.narrow);
  while (!op->done())
    if (!step(&op, narrow)) changed_.wait(lock);
  seen(*op);
}

bool engine::poll(const operation_ref& op) {
  maybe_change_temper();
  if (!op) return true;
  for (std::uint64_t many = draw(3); many > 0 && !op->done(); --many) step(&op, chance(temper_.narrow));
  if (op->done()) seen(*op);
  return op->done();
}

void engine::defer(const void* who, std::function<void()> work) {
  deferred_[who] = std::move(work);
  changed_.notify_all();
}

void engine::run_deferred(const void* who) {
  const auto found = deferred_.find(who);
  if (found == deferred_.end()) return;
  const std::function<void()> work = std::move(found->second);
  deferred_.erase(found);
  work();
  changed_.notify_all();
}

void engine::wait_until(engine_lock& lock, const std::function<bool()>& true_now) {
  while (!true_now())
    if (!step(nullptr, false)) changed_.wait(lock);
}

std::vector<operation_ref> engine::pending_on(int device) const {
  std::vector<operation_ref> found;
  for (const operation_ref& op : pending_)
    if (op->device == device) found.push_back(op);
  std::ranges::sort(found, {}, [](const operation_ref& op) { return std::pair(op->stream, op->turn); });
  return found;
}

void engine::seen(const operation& op) {
  merge(known_, op.before);
}

bool engine::known(const operation& op) const {
  return knows(known_, op);
}

bool engine::ordered(const operation& a, const operation& b) {
  return knows(b.before, a) || knows(a.before, b);
}

void engine::problem(std::string text) {
  if (problems_.size() < 1000) problems_.push_back(std::move(text));
}

std::string engine::pending_text() const {
  std::vector<operation_ref> all(pending_.begin(), pending_.end());
  std::ranges::sort(all, {}, [](const operation_ref& op) { return std::pair(op->stream, op->turn); });
  constexpr const char* stages[] = {"waits", "could run", "waits for other ranks", "runs", "is done"};
  std::string text;
  for (const operation_ref& op : all) {
    text += op->what + ": " + (op->hangs ? "made to hang" : stages[static_cast<int>(op->now)]);
    for (const operation_ref& other : op->after) text += "; after " + other->what;
    text += "\n";
  }
  return text;
}

// Host functions run on the double's threads, one thread each if several may run at once. A blocking function must not
// delay other streams, nor the thread that polls for its completion.
void engine::run_host(operation_ref op) {
  host_queue_.push_back(std::move(op));
  ++running_hosts_;
  if (idle_hosts_ >= host_queue_.size())
    host_work_.notify_one();
  else
    std::thread([this] { host_thread(); }).detach();
}

void engine::host_thread() {
  engine_lock held(mutex_);
  while (true) {
    while (host_queue_.empty()) {
      ++idle_hosts_;
      host_work_.wait(held);
      --idle_hosts_;
    }
    const operation_ref op = std::move(host_queue_.front());
    host_queue_.pop_front();
    if (device_error(op->device) == 0 && memory_of_the_double().allows(*op)) {
      const std::function<void()> host = op->host;
      held.unlock();
      current_host_function() = op.get();
      host();
      current_host_function() = nullptr;
      held.lock();
    }
    --running_hosts_;
    seen(*op);  // it may have notified the host
    finish(op);
  }
}

// Runs work spontaneously, a little later: a program may wait for a byte that a host function writes.
void engine::background_thread() {
  engine_lock held(mutex_);
  std::minstd_rand pace;  // separate: how often this thread wakes must not change what others draw
  while (true) {
    changed_.wait(held, [this] { return background_ && (!ready_.empty() || !deferred_.empty()); });
    const auto pause = std::chrono::microseconds(100 + pace() % 2000);
    held.unlock();
    std::this_thread::sleep_for(pause);
    held.lock();
    if (!background_) continue;
    for (unsigned many = 1 + pace() % 4; many > 0 && step(nullptr, false); --many) {
    }
  }
}

}  // namespace gpu_double
