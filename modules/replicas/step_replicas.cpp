// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <process_token.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <shardmesh/try.hpp>
module shardmesh.replicas;

import shardmesh.comm;
import shardmesh.tree;
import :kept_catalog;
import :memory_step;
import :memory_survey;
import :rank_round;
import :step_keep;
import :step_resume;

namespace shardmesh {
namespace {

// A keep whose second half runs in the background. The communicator outlives the keep.
struct running_keep {
  running_keep(any_communicator given, std::vector<memory_step>& steps, const replicas_options& options,
               const keep_options& how)
      : comm(std::move(given)), work(steps, comm, options, how) {}
  any_communicator comm;
  step_keep work;
  result<keep_report> outcome = keep_report();
};

}  // namespace

struct step_replicas::state {
  replicas_options options;
  std::vector<memory_step> steps;
  std::unique_ptr<running_keep> running;
  std::optional<result<keep_report>> ended;  // the outcome of a keep in the background that was not returned yet
  std::thread thread;
  detail::maker_process maker;

  // A forked child has no thread that could end a keep.
  result<void> check_process() const {
    if (maker.is_this()) return {};
    return fail(errc::invalid_argument, "the replicas belong to the process that forked this one")
        .with_hint("make another step_replicas in this process");
  }
  // In a forked child, the parent's thread may have left `steps` half changed.
  bool are_steps_whole() const { return !running; }
  // Waits until no thread uses `steps`, and lets go of the communicator.
  void join() {
    if (!running || !maker.is_this()) return;
    thread.join();
    ended = std::move(running->outcome);
    running.reset();
  }
};

step_replicas::step_replicas(std::unique_ptr<state> made) : state_(std::move(made)) {}
step_replicas::step_replicas(step_replicas&&) noexcept = default;
step_replicas& step_replicas::operator=(step_replicas&& other) noexcept {
  if (this != &other) {
    detail::end_background_work(state_);
    state_ = std::move(other.state_);
  }
  return *this;
}
step_replicas::~step_replicas() {
  detail::end_background_work(state_);
}

result<step_replicas> step_replicas::make(const replicas_options& options) {
  if (options.copies < 1)
    return fail(errc::invalid_argument, "replicas have no copy")
        .with_values("copies of 1 or more", fmt::format("{}", options.copies));
  if (options.memory_bytes < 0)
    return fail(errc::invalid_argument, "the memory for replicas is negative")
        .with_values("memory_bytes of 0 or more", fmt::format("{}", options.memory_bytes));
  auto made = std::make_unique<state>();
  made->options = options;
  return step_replicas(std::move(made));
}

result<keep_report> step_replicas::keep_by(std::int64_t step, detail::replica_maker make, communicator_ref comm,
                                           const keep_options& options) {
  SHARDMESH_TRY(state_->check_process());
  state_->join();
  step_keep work(state_->steps, comm, state_->options, options);
  SHARDMESH_TRY(work.prepare(step, make));
  return work.finish();
}

result<std::optional<keep_report>> step_replicas::start_by(std::int64_t step, detail::replica_maker make,
                                                           communicator_ref comm, const keep_options& options) {
  SHARDMESH_TRY(std::optional<keep_report> before, wait());
  const call_options call{.within = options.within, .cancel = options.cancel, .name = "replicas.start_keep"};
  SHARDMESH_TRY(any_communicator own, subgroup(comm, rank_group::world(comm.size()), call));
  auto keep = std::make_unique<running_keep>(std::move(own), state_->steps, state_->options, options);
  SHARDMESH_TRY(keep->work.prepare(step, make));
  auto* const work = keep.get();
  const auto start = [&]() -> result<void> {
    state_->thread = std::thread([work] { work->outcome = work->work.finish(); });
    return {};
  };
  if (const auto started = guarded(start); !started) {
    comm.abort(started.error());  // the others are already running
    return started.error();
  }
  state_->running = std::move(keep);
  return before;
}

result<std::optional<keep_report>> step_replicas::wait() {
  SHARDMESH_TRY(state_->check_process());
  state_->join();
  const std::optional<result<keep_report>> ended = std::exchange(state_->ended, std::nullopt);
  if (!ended) return std::optional<keep_report>();
  if (!*ended) return ended->error();
  return std::optional<keep_report>(**ended);
}

result<std::vector<available_step>> step_replicas::available(communicator_ref comm, const call_options& call) {
  SHARDMESH_TRY(state_->check_process());
  state_->join();
  std::vector<available_step> made;
  const rank_round round{comm, call.named("replicas.available")};
  const auto done = guarded(comm, [&]() -> result<void> {
    SHARDMESH_TRY(const std::vector<surveyed_step> found, survey_memory(state_->steps, round));
    for (const surveyed_step& one : found) made.push_back({one.catalog->step, lost_chunks(one), one.damaged_copies});
    return {};
  });
  if (!done) return done.error();
  return made;
}

result<resumed_step> step_replicas::resume_by(const detail::replica_target& target, communicator_ref comm,
                                              const rank_load_options& options) {
  SHARDMESH_TRY(state_->check_process());
  state_->join();
  return step_resume(state_->steps, comm, options).run(target);
}

std::vector<kept_copy> step_replicas::copies() const {
  state_->join();
  std::vector<kept_copy> made;
  if (!state_->are_steps_whole()) return made;
  for (const memory_step& step : state_->steps) {
    const std::vector<numbered_chunk> chunks = chunks_of(*step.catalog);
    for (const chunk_copy& copy : step.copies) {
      const numbered_chunk& one = chunks[copy.chunk];
      const extents& sizes = one.chunk->where.sizes;
      made.push_back({step.catalog->step,
                      one.tensor->key,
                      one.tensor->is_object,
                      one.chunk->where,
                      {step.bytes_of(copy).data(), one.tensor->type, {}, sizes, contiguous_strides(sizes)}});
    }
  }
  return made;
}

std::int64_t step_replicas::kept_bytes() const {
  state_->join();
  return state_->are_steps_whole() ? bytes_in(state_->steps) : 0;
}

}  // namespace shardmesh
