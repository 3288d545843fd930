// SPDX-License-Identifier: Apache-2.0
module;
#include <signal.h>
#include <time.h>
#include <shardmesh/try.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>
module shardmesh.run;

import shardmesh.comm;

namespace shardmesh {
namespace {

// A signal belongs to the process, and so does its state.
std::atomic<std::int64_t> arrival = 0;  // of the first signal, in nanoseconds of CLOCK_MONOTONIC; 0: none
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler writes it");
std::mutex installing;
int users = 0;
struct sigaction earlier{};

std::int64_t monotonic_now() noexcept {
  struct timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(now.tv_nsec);
}

void note_arrival(int) {
  std::int64_t none = 0;
  arrival.compare_exchange_strong(none, monotonic_now());
}

}  // namespace

termination_signal::termination_signal() {
  const std::scoped_lock guard(installing);
  if (users++ > 0) return;
  arrival = 0;
  struct sigaction ours{};
  ours.sa_handler = note_arrival;
  ours.sa_flags = SA_RESTART;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGTERM, &ours, &earlier);
}

termination_signal::~termination_signal() {
  const std::scoped_lock guard(installing);
  if (--users == 0) ::sigaction(SIGTERM, &earlier, nullptr);
}

bool termination_signal::has_arrived() const noexcept {
  return arrival != 0;
}

result<bool> termination_signal::has_arrived_on_any(communicator_ref comm, const call_options& call) const {
  agree_options told;
  if (has_arrived()) told.note.push_back(std::byte{1});
  told.combine = [](std::vector<std::byte>&, std::span<const std::byte>) {};  // the notes of signals are equal
  SHARDMESH_TRY(const agreement_notes notes,
                agree(comm, std::span<const agreement_record>(), told, call.named("termination_signal")));
  return !notes.front().empty();
}

time_limit termination_signal::deadline(std::chrono::milliseconds budget) const noexcept {
  const std::int64_t begin = arrival, now = monotonic_now();
  // Not integers: the longest budget overflows nanoseconds.
  const std::chrono::duration<double> whole(budget), used(std::chrono::nanoseconds(begin == 0 ? 0 : now - begin));
  return whole - used;
}

}  // namespace shardmesh
