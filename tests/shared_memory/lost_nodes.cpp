// SPDX-License-Identifier: Apache-2.0
// Processes keep each step in memory, and some of them are killed at a random moment. The others and new processes meet
// in another group and resume: the last step that any rank reported, or a later one. When too many are killed, they
// resume from the store. Prints one line per wrong answer.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dice.hpp>
#include <filesystem>
#include <new>
#include <optional>
#include <random_seed.hpp>
#include <scratch_folder.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../unit/replicas/replica_states.hpp"

import shardmesh.shared_memory;

using namespace shardmesh;
using namespace replica_states;
using namespace std::chrono_literals;

namespace {

// Each rank is a node.
struct scene {
  std::int32_t nodes = 4, copies = 2;
  std::vector<std::int32_t> victims;
  bool is_recoverable = true;
  std::filesystem::path run;
  std::string before, after;  // tokens of the groups before the loss and after it
};

// The highest step that any rank reported as kept; in memory that all processes share.
using kept_step_number = std::atomic<std::int64_t>;

void record(kept_step_number& kept, std::int64_t step) {
  std::int64_t known = kept;
  while (known < step && !kept.compare_exchange_weak(known, step)) {
  }
}

// Saves step 1 in the store, and then keeps steps in memory until a rank is lost.
result<void> train(const scene& now, std::int32_t rank, step_replicas& memory, kept_step_number& kept) {
  auto comm = shared_memory_communicator::join(now.before, rank, {.within = 60s});
  if (!comm) return std::move(comm).error();
  const cut mesh{now.nodes, 1};
  {
    auto run = checkpoint_run::open(now.run, *comm);
    if (!run) return std::move(run).error();
    run_save_options quick;
    quick.saving.durable = false;
    if (auto saved = run->save(1, trained(mesh, rank, 1), *comm, quick); !saved) return saved.error();
  }
  for (std::int64_t step = 2;; ++step) {
    if (step % 3 == 0) {
      if (const auto done = memory.keep(step, trained(mesh, rank, step), *comm); !done) break;
      record(kept, step);
    } else {
      const auto before = memory.start_keep(step, trained(mesh, rank, step), *comm);
      if (!before) break;
      if (*before) record(kept, (**before).step);
    }
  }
  // The copy in the background ends with this group; its error is that of the loss.
  if (const auto last = memory.wait(); last && *last) record(kept, (**last).step);
  return {};
}

// Meets the others on another mesh, resumes, and keeps the next step.
result<void> resume(const scene& now, std::int32_t rank, step_replicas& memory, const kept_step_number& kept) {
  auto comm = shared_memory_communicator::join(now.after, rank, {.within = 60s});
  if (!comm) return std::move(comm).error();
  auto run = checkpoint_run::open(now.run, *comm);
  if (!run) return std::move(run).error();
  const cut mesh{now.nodes / 2, 2};
  model mine(mesh, rank);
  const auto resumed = memory.resume(mine, *comm, *run);
  if (!resumed) return resumed.error();
  if (resumed->is_from_memory != now.is_recoverable) return fail(errc::gap, "resumed from the other place");
  const std::int64_t step = resumed->step.value_or(0);
  const std::int64_t reported = kept;
  if (now.is_recoverable ? step < reported : step != 1)
    return fail(errc::gap, "another step").with_values(std::to_string(reported), std::to_string(step));
  if (resumed->skipped.empty() && !now.is_recoverable) return fail(errc::gap, "no lost box is named");
  if (mine != trained(mesh, rank, step)) return fail(errc::checksum_mismatch, "other values");
  const auto next = memory.keep(step + 1, trained(mesh, rank, step + 1), *comm);
  return next ? result<void>() : next.error();
}

int be_rank(const scene& now, std::int32_t rank, kept_step_number& kept, bool is_new) {
  ::alarm(200);
  step_replicas memory = step_replicas::make(on_nodes(now.copies, 1)).value();
  result<void> done;
  if (!is_new) done = train(now, rank, memory, kept);
  if (done) done = resume(now, rank, memory, kept);
  if (!done) std::fprintf(stderr, "rank %d of %d: %s\n", rank, now.nodes, to_string(done.error()).c_str());
  return done ? 0 : 1;
}

int play(scene now, std::chrono::microseconds after, kept_step_number& kept) {
  const scratch_folder scratch;
  const auto before = shared_memory_group::make(now.nodes).value(),
             later = shared_memory_group::make(now.nodes).value();
  now.run = scratch / "run";
  now.before = before.token();
  now.after = later.token();
  kept = 0;
  std::vector<pid_t> children;
  const auto start = [&](std::int32_t rank, bool is_new) {
    const pid_t child = ::fork();
    if (child == 0) std::_Exit(be_rank(now, rank, kept, is_new));
    return child;
  };
  for (std::int32_t rank = 0; rank < now.nodes; ++rank) children.push_back(start(rank, false));
  for (int waits = 0; kept < 2 && waits < 60'000; ++waits) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(after);
  for (const std::int32_t victim : now.victims) ::kill(children[static_cast<std::size_t>(victim)], SIGKILL);
  for (const std::int32_t victim : now.victims) {
    pid_t& child = children[static_cast<std::size_t>(victim)];
    ::waitpid(child, nullptr, 0);
    child = start(victim, true);
  }
  int wrong = kept < 2 ? 1 : 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    wrong += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  return wrong;
}

}  // namespace

int main() {
  const std::uint64_t seed = random_seed::seed();
  dice random(seed);
  void* const page =
      ::mmap(nullptr, sizeof(kept_step_number), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return std::perror("mmap"), 2;
  auto& kept = *new (page) kept_step_number(0);
  int wrong = 0;
  for (std::uint64_t round = 0; round < random_seed::rounds(4) && wrong == 0; ++round) {
    const auto first = static_cast<std::int32_t>(random.below(8));
    const auto second = static_cast<std::int32_t>((first + 1 + random.below(7)) % 8);
    const std::vector<scene> scenes{{4, 2, {first % 4}, true, {}, "", ""},
                                    {8, 3, {first, second}, true, {}, "", ""},
                                    {4, 2, {first % 4, (first + 1) % 4}, false, {}, "", ""}};
    for (const scene& one : scenes) wrong += play(one, std::chrono::microseconds(random.below(30'000)), kept);
  }
  if (wrong != 0) std::fprintf(stderr, "SHARDMESH_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return wrong == 0 ? 0 : 1;
}
