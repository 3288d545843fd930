// SPDX-License-Identifier: Apache-2.0
module;
#include <process_token.hpp>

#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
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

  struct job {
    std::filesystem::path run;
    prune_options options;
  };

  // The body of the thread. No exception leaves it.
  void work(job now) noexcept {
    while (true) {
      prune(now.run, now.options);
      const std::scoped_lock held(mutex);
      if (!next) {
        is_running = false;
        return;
      }
      now = *std::exchange(next, std::nullopt);
    }
  }

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
  }

  std::mutex mutex;
  std::vector<std::string> notes;
  bool is_running = false;  // under the mutex, as is the next member
  std::optional<job> next;
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
  if (!state_->maker.is_this()) return;
  state::job wanted{run, options};
  {
    const std::scoped_lock held(state_->mutex);
    if (state_->is_running) {
      state_->next = std::move(wanted);
      return;
    }
    state_->is_running = true;
  }
  if (state_->thread.joinable()) state_->thread.join();
  try {
    state_->thread = std::thread([to = state_.get(), wanted] { to->work(wanted); });
  } catch (const std::exception& e) {
    {
      const std::scoped_lock held(state_->mutex);
      state_->is_running = false;
    }
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
