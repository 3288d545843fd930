// SPDX-License-Identifier: Apache-2.0
module;
#include <remote/http/curl_functions.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.remote;

import :attempt;
import :curl_library;
import :curl_transfer;
import :driver;
import :open_sockets;

namespace shardmesh::remote {

namespace {

// After `load_curl` has succeeded.
const curl_functions& curl() {
  return *static_cast<const curl_functions*>(curl_table());
}

}  // namespace

// The thread allocates only in `make_transfer` and in `curl_transfer`, which turn a lack of memory into the end of an
// attempt.
struct driver::state {
  explicit state(http_options given) : options(std::move(given)) { running.reserve(most_running()); }

  std::size_t most_running() const { return static_cast<std::size_t>(std::clamp(options.connections, 1, 4096)); }

  void wake();
  void close();
  void run();
  void move_bytes();
  bool take_orders();
  void start_waiting();
  void collect_ended();
  void end_stalled();
  void end_unwanted();
  void end_all();
  using transfers = std::vector<std::unique_ptr<curl_transfer>>;
  void end(transfers::iterator ended, attempt::ending how, int code = CURLE_OK);
  void restart(transfers::iterator stale);
  std::unique_ptr<curl_transfer> take(transfers::iterator from);
  std::unique_ptr<curl_transfer> make_transfer(const std::shared_ptr<attempt>& of);

  const http_options options;
  CURLM* multi = nullptr;
  std::mutex lock;
  bool is_stopping = false, has_unwanted = false;  // under the lock
  attempt_list arrived;                            // under the lock
  attempt_list waiting;                            // of the thread, as are the next three
  transfers running;                               // at most `most_running`, for which it has room
  open_sockets sockets;
  std::thread thread;
};

namespace {

void post(std::shared_ptr<attempt> ended) {
  const auto to = ended->to;
  to->post(std::move(ended));
}

// Allows no transfer without libcurl: `multi` is null.
CURLM* make_multi(const http_options& options) {
  CURLM* const made = load_curl() ? curl().multi_init() : nullptr;
  if (made == nullptr) return nullptr;
  curl().multi_setopt(made, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
  curl().multi_setopt(made, CURLMOPT_MAXCONNECTS, static_cast<long>(std::max(options.connections, 1)));
  return made;
}

}  // namespace

driver::driver(const http_options& options) : state_(std::make_unique<state>(options)) {
  state_->multi = make_multi(options);
  try {
    state_->thread = std::thread([all = state_.get()] { all->run(); });
  } catch (...) {
    state_->close();
    throw;
  }
}

driver::~driver() {
  stop();
  state_->close();
}

void driver::start(std::shared_ptr<attempt> next) {
  {
    const std::scoped_lock guard(state_->lock);
    if (!state_->is_stopping) {
      state_->arrived.splice(state_->arrived.end(), listed(std::move(next)));
      state_->wake();
      return;
    }
  }
  post(std::move(next));  // its end is `withdrawn`
}

void driver::withdraw(const std::shared_ptr<attempt>& unwanted) {
  const std::scoped_lock guard(state_->lock);
  if (state_->is_stopping) return;  // all are withdrawn
  unwanted->is_unwanted = true;
  state_->has_unwanted = true;
  state_->wake();
}

void driver::stop() {
  {
    const std::scoped_lock guard(state_->lock);
    state_->is_stopping = true;
    state_->wake();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

void driver::state::run() {
  using std::chrono::milliseconds;
  // Often enough to notice a stalled transfer soon.
  const auto idle = static_cast<int>(std::clamp(options.stall / 8, milliseconds(10), milliseconds(250)).count());
  while (take_orders()) {
    start_waiting();
    move_bytes();
    collect_ended();
    end_stalled();
    const bool has_room = !waiting.empty() && running.size() < most_running();
    if (has_room) continue;
    if (multi == nullptr || curl().multi_poll(multi, nullptr, 0, running.empty() ? 60'000 : idle, nullptr) != CURLM_OK)
      std::this_thread::sleep_for(milliseconds(10));  // without memory, poll returns at once
  }
  end_all();
}

void driver::state::wake() {
  if (multi != nullptr) curl().multi_wakeup(multi);
}

void driver::state::close() {
  if (multi != nullptr) curl().multi_cleanup(multi);
}

void driver::state::move_bytes() {
  int running_count = 0;
  if (multi != nullptr) curl().multi_perform(multi, &running_count);
}

// Returns false when the driver stops.
bool driver::state::take_orders() {
  bool goes_on = true, has_removed = false;
  {
    const std::scoped_lock guard(lock);
    waiting.splice(waiting.end(), arrived);
    has_removed = std::exchange(has_unwanted, false);
    goes_on = !is_stopping;
  }
  if (has_removed) end_unwanted();
  return goes_on;
}

// An attempt that is in neither list has ended already.
void driver::state::end_unwanted() {
  for (auto at = waiting.begin(); at != waiting.end();) {
    const auto next = std::next(at);
    if ((*at)->is_unwanted) post(take_from(waiting, at));
    at = next;
  }
  for (std::size_t i = running.size(); i-- > 0;)
    if (running[i]->of()->is_unwanted)
      end(running.begin() + static_cast<std::ptrdiff_t>(i), attempt::ending::withdrawn);
}

// Returns null if there is no memory.
std::unique_ptr<curl_transfer> driver::state::make_transfer(const std::shared_ptr<attempt>& of) {
  try {
    return std::make_unique<curl_transfer>(of, options, sockets);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void driver::state::start_waiting() {
  while (!waiting.empty() && running.size() < most_running()) {
    auto next = take_from(waiting, waiting.begin());
    auto made = make_transfer(next);
    if (made && made->is_ready() && multi != nullptr &&
        curl().multi_add_handle(multi, static_cast<CURL*>(made->handle())) == CURLM_OK) {
      running.push_back(std::move(made));
      continue;
    }
    if (!made)
      set_out_of_memory(*next);
    else if (made->is_ready())
      set_failed(*next, CURLE_FAILED_INIT, "libcurl cannot start a transfer");
    made.reset();
    post(std::move(next));
  }
}

std::unique_ptr<curl_transfer> driver::state::take(transfers::iterator from) {
  auto transfer = std::move(*from);
  *from = std::move(running.back());
  running.pop_back();
  curl().multi_remove_handle(multi, static_cast<CURL*>(transfer->handle()));
  return transfer;
}

// Each stale transfer closes a connection, and a new connection is never stale: restarts end.
void driver::state::restart(transfers::iterator stale) {
  waiting.splice(waiting.begin(), listed(take(stale)->of()));
}

void driver::state::end(transfers::iterator ended, attempt::ending how, int code) {
  auto transfer = take(ended);
  auto of = transfer->of();
  if (how == attempt::ending::answered)
    transfer->finish(code);
  else
    of->end = how;
  transfer.reset();  // before the call may free the sink and the body
  post(std::move(of));
}

void driver::state::collect_ended() {
  if (multi == nullptr) return;
  int left = 0;
  while (const CURLMsg* const message = curl().multi_info_read(multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURL* const easy = message->easy_handle;
    const CURLcode code = message->data.result;
    const auto found =
        std::find_if(running.begin(), running.end(), [&](const auto& one) { return one->handle() == easy; });
    if (found == running.end()) continue;
    if ((*found)->is_stale())
      restart(found);
    else
      end(found, attempt::ending::answered, code);
  }
}

void driver::state::end_stalled() {
  const auto now = curl_transfer::clock::now();
  for (std::size_t i = running.size(); i-- > 0;)
    if (running[i]->has_stalled(now, options.stall))
      end(running.begin() + static_cast<std::ptrdiff_t>(i), attempt::ending::stalled);
}

void driver::state::end_all() {
  take_orders();
  while (!running.empty()) end(running.end() - 1, attempt::ending::withdrawn);
  while (!waiting.empty()) post(take_from(waiting, waiting.begin()));
}

}  // namespace shardmesh::remote
