// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <process_token.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.checkpoint;

namespace shardmesh {
namespace {

result<load_report> run_guarded(const std::function<result<load_report>()>& work) {
  try {
    return work();
  } catch (...) {
    return detail::caught_error();
  }
}

}  // namespace

struct load_in_progress::state {
  std::function<result<load_report>()> work;
  result<load_report> outcome = load_report();
  result<load_report> in_child = load_report();  // returned by `wait` in a forked child process
  std::atomic<bool> done = false;
  std::thread thread;
  detail::maker_process maker;
};

result<load_in_progress> load_in_progress::start(std::function<result<load_report>()> work) {
  auto made = std::make_unique<state>();
  made->work = std::move(work);
  try {
    made->thread = std::thread([running = made.get()] {
      running->outcome = run_guarded(running->work);
      running->done = true;
    });
  } catch (const std::system_error& e) {
    return fail(errc::no_memory, fmt::format("cannot start a thread: {}", e.what()));
  }
  return load_in_progress(std::move(made));
}

load_in_progress::load_in_progress(std::unique_ptr<state> made) : state_(std::move(made)) {}
load_in_progress::load_in_progress(load_in_progress&&) noexcept = default;
load_in_progress& load_in_progress::operator=(load_in_progress&& other) noexcept {
  if (this != &other) {
    detail::end_background_work(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}
load_in_progress::~load_in_progress() {
  detail::end_background_work(state_);
}

bool load_in_progress::done() const {
  return state_->done;
}

const result<load_report>& load_in_progress::wait() {
  if (!state_->maker.is_this()) {
    state_->in_child = fail(errc::invalid_argument, "the load runs in the process that forked this one")
                           .with_hint("wait for it there");
    return state_->in_child;
  }
  if (state_->thread.joinable()) state_->thread.join();
  return state_->outcome;
}

result<load_in_progress> start_load(checkpoint_reader& reader, std::vector<load_request> requests,
                                    load_options options) {
  return load_in_progress::start([&reader, requests = std::move(requests), options = std::move(options)] {
    return load(reader, requests, options);
  });
}

}  // namespace shardmesh
