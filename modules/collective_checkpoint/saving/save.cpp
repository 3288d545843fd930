// SPDX-License-Identifier: Apache-2.0
module;
#include <process_token.hpp>
#include <shardmesh/try.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import :rank_save;

namespace shardmesh {
namespace fs = std::filesystem;

result<save_report> save(const fs::path& destination, const const_local_state& held, communicator_ref comm,
                         const rank_save_options& options) {
  rank_save work(destination, comm, options);
  SHARDMESH_TRY(work.plan(held));
  return work.write();
}

struct save_in_progress::state {
  state(fs::path destination, communicator_ref comm, const rank_save_options& options)
      : work(std::move(destination), comm, options) {}
  rank_save work;
  result<save_report> outcome = save_report();
  result<save_report> in_child = save_report();  // of `wait` in a forked process
  std::atomic<bool> done = false;
  std::thread thread;
  detail::maker_process maker;
};

save_in_progress::save_in_progress(std::unique_ptr<state> made) : state_(std::move(made)) {}
save_in_progress::save_in_progress(save_in_progress&&) noexcept = default;
save_in_progress& save_in_progress::operator=(save_in_progress&& other) noexcept {
  if (this != &other) {
    detail::end_background_work(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}
save_in_progress::~save_in_progress() {
  detail::end_background_work(state_);
}

bool save_in_progress::done() const {
  return state_->done;
}

const result<save_report>& save_in_progress::wait() {
  if (!state_->maker.is_this()) {
    state_->in_child = fail(errc::invalid_argument, "the save runs in the process that forked this one")
                           .with_hint("wait for it there");
    return state_->in_child;
  }
  if (state_->thread.joinable()) state_->thread.join();
  return state_->outcome;
}

result<save_in_progress> start_save(const fs::path& destination, const const_local_state& held, communicator_ref comm,
                                    const rank_save_options& options) {
  auto made = std::make_unique<save_in_progress::state>(destination, comm, options);
  SHARDMESH_TRY(made->work.plan(held));
  SHARDMESH_TRY(made->work.copy_sources());
  auto* const running = made.get();
  const auto started = guarded([&]() -> result<void> {
    running->thread = std::thread([running] {
      running->outcome = running->work.write();
      running->done = true;
    });
    return {};
  });
  if (!started) {
    comm.abort(started.error());  // the others are already running
    return started.error();
  }
  return save_in_progress(std::move(made));
}

}  // namespace shardmesh
