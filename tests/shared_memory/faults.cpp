// SPDX-License-Identifier: Apache-2.0
// A process is killed, is stopped, or leaves mid-run: every survivor soon gets an error that names it. Prints one line
// per error, and nothing on success.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

import shardmesh.shared_memory;

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;
using seconds = std::chrono::duration<double>;

namespace {

constexpr std::int32_t ranks = 3, victim = 1;

struct scene {
  std::string phase;
  int signal = 0;  // 0: the process exits
  bool keeps_child = false;

  // Only a deadline ends the wait for a stopped process. A busy machine must meet the deadline until then. The end of a
  // process is noticed at once, long before the deadline.
  seconds deadline() const { return seconds(signal == SIGSTOP ? 4 : 60); }
  seconds most() const { return seconds(signal == SIGSTOP ? 12 : 20); }
};

void reached(const scene& now, const char* phase, std::int32_t rank) {
  if (rank != victim || now.phase != phase) return;
  if (now.keeps_child && ::fork() == 0) {
    ::pause();  // a child of the victim, with everything open that the victim had
    std::_Exit(0);
  }
  if (now.signal == 0) std::_Exit(0);
  ::raise(now.signal);
}

// Every rank sends every rank the same large message, again and again.
result<void> run(shared_memory_communicator& comm, const scene& now, clock_type::time_point& began) {
  std::vector<std::byte> mine(8 << 20, std::byte{1});
  std::vector<std::vector<std::byte>> theirs(ranks, std::vector<std::byte>(mine.size()));
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::int32_t peer = 0; peer < ranks; ++peer) {
    if (peer == comm.rank()) continue;
    sends.push_back({peer, mine});
    receives.push_back({peer, theirs[static_cast<std::size_t>(peer)]});
  }
  const auto options = [&] {
    began = clock_type::now();
    return call_options{.within = began + std::chrono::duration_cast<clock_type::duration>(now.deadline())};
  };
  for (int round = 0; round < 20; ++round) {
    if (round == 3) reached(now, "gather", comm.rank());
    if (const auto all = comm.all_gather(mine, options()); !all) return all.error();
    if (round == 3) reached(now, "exchange", comm.rank());
    auto work = comm.start_exchange(sends, receives, options());
    if (!work) return work.error();
    if (round == 3) reached(now, "started", comm.rank());
    if (const auto done = work->wait(); !done) return done.error();
  }
  return {};
}

int survive(const scene& now, const std::string& token, std::int32_t rank) {
  auto comm = shared_memory_communicator::join(token, rank, {.within = std::chrono::seconds(20)});
  if (!comm) return std::fprintf(stderr, "rank %d: %s\n", rank, to_string(comm.error()).c_str()), 1;
  clock_type::time_point began;
  const auto done = run(*comm, now, began);
  const seconds took = clock_type::now() - began;
  const std::string text = done ? "no error" : to_string(done.error());
  if (!done && std::ranges::find(done.error().ranks, victim) != done.error().ranks.end() && took < now.most()) return 0;
  std::fprintf(stderr, "%s with signal %d: rank %d, after %.1f s: %s\n", now.phase.c_str(), now.signal, rank,
               took.count(), text.c_str());
  return 1;
}

int play(const scene& now) {
  const auto group = shared_memory_group::make(ranks).value();
  std::vector<pid_t> children;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      std::_Exit(survive(now, group.token(), rank));
    }
    children.push_back(child);
  }
  int wrong = 0;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    if (rank == victim) continue;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    wrong += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  ::kill(-children[victim], SIGKILL);  // including its possible child
  ::waitpid(children[victim], nullptr, 0);
  return wrong;
}

// Rank 1 is killed while it sends its error, which is so large that this takes long. Without a deadline, rank 2 waits
// for rank 1, and rank 0 for rank 2. Rank 2 stays, so rank 0 ends only if rank 2 can still notify the others.
int dies_while_it_tells(std::chrono::milliseconds after) {
  const auto group = shared_memory_group::make(ranks).value();
  int begins[2] = {};
  if (::pipe(begins) != 0) return 1;
  const auto act = [&](std::int32_t rank) {
    auto comm = shared_memory_communicator::join(group.token(), rank).value();
    if (rank == victim) {
      const error reason = fail(errc::io, std::string(std::size_t{256} << 20, 'x'));
      if (::write(begins[1], "b", 1) != 1) return 1;
      comm.abort(reason);
      ::pause();
    }
    ::alarm(60);  // no error within that time
    std::vector<std::byte> room(10);
    const incoming message{rank == 2 ? victim : 2, room};
    auto work = comm.start_exchange({}, std::span(&message, 1), {});
    if (work && work->wait()) return 1;
    if (rank == 2) ::pause();
    return 0;
  };
  std::vector<pid_t> children;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    children.push_back(::fork());
    if (children.back() == 0) std::_Exit(act(rank));
  }
  char one = 0;
  int wrong = ::read(begins[0], &one, 1) == 1 ? 0 : 1;
  std::this_thread::sleep_for(after);
  ::kill(children[victim], SIGKILL);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    int status = 0;
    if (rank == 2) ::kill(children[2], SIGKILL);  // rank 0 has ended
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (rank != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
    std::fprintf(stderr, "killed %lld ms after it began to tell: rank %d got no error\n",
                 static_cast<long long>(after.count()), rank);
    ++wrong;
  }
  ::close(begins[0]);
  ::close(begins[1]);
  return wrong;
}

}  // namespace

int main() {
  int wrong = 0;
  for (const int after : {0, 20, 60, 120, 200, 300, 450})
    wrong += dies_while_it_tells(std::chrono::milliseconds(after));
  for (const char* phase : {"gather", "exchange", "started"}) {
    for (const int signal : {SIGKILL, SIGSTOP, 0}) wrong += play({phase, signal});
    wrong += play({phase, SIGKILL, true});
  }
  return wrong == 0 ? 0 : 1;
}
