// SPDX-License-Identifier: Apache-2.0
module;
#include <process_token.hpp>

#include <atomic>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.run;

import :background_prune;

namespace shardmesh {

struct background_prune::state {
  void add(std::string line) {
    const std::scoped_lock held(mutex);
    notes.push_back(std::move(line));
  }

  // The body of the thread. No exception leaves it.
  void prune(const std::filesystem::path& run, const prune_options& options) noexcept {
    try {
      if (const auto plan = plan_prune(run, options)) {
        for (const std::string& note : plan->notes) add("prune: " + note);
        for (const error& problem : carry_out(*plan).problems) add("prune: " + to_string(problem));
      } else {
        add("prune: " + to_string(plan.error()));
      }
    } catch (const std::exception&) {  // no memory: the next prune tries again
    }
    is_running = false;
  }

  std::mutex mutex;
  std::vector<std::string> notes;
  std::atomic<bool> is_running = false;
  std::thread thread;
  detail::maker_process maker;
};

background_prune::background_prune() : state_(std::make_unique<state>()) {}
background_prune::background_prune(background_prune&&) noexcept = default;
background_prune& background_prune::operator=(background_prune&& other) noexcept {
  if (this != &other) {
    detail::end_background_work(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}
background_prune::~background_prune() {
  detail::end_background_work(state_);
}

void background_prune::start(const std::filesystem::path& run, const prune_options& options) {
  if (!state_->maker.is_this() || state_->is_running) return;
  if (state_->thread.joinable()) state_->thread.join();
  state_->is_running = true;
  try {
    state_->thread = std::thread([to = state_.get(), run, options] { to->prune(run, options); });
  } catch (const std::exception& e) {
    state_->is_running = false;
    state_->add(std::string("prune: no thread could be started: ") + e.what());
  }
}

void background_prune::wait() {
  if (state_->maker.is_this() && state_->thread.joinable()) state_->thread.join();
}

void background_prune::add_note(std::string line) {
  state_->add(std::move(line));
}

std::vector<std::string> background_prune::take_notes() {
  const std::scoped_lock held(state_->mutex);
  return std::exchange(state_->notes, {});
}

}  // namespace shardmesh
