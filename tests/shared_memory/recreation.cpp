// SPDX-License-Identifier: Apache-2.0
// A rank is stopped in the middle of a group, which its peers' deadline poisons. The peers make the next groups while
// the rank is stopped, or it wakes up in between. The new group forms, or each rank has the same error at its deadline.
// No message of the old group arrives in a new one, and the rank that wakes up has the old group's error. Prints one
// line per wrong answer.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dice.hpp>
#include <new>
#include <random_seed.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

import shardmesh.shared_memory;

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::int32_t ranks = 3, victim = 1;
constexpr std::chrono::milliseconds old_deadline{1000}, join_deadline{700}, grace{2000};
constexpr std::chrono::seconds patient{30};

struct scene {
  std::size_t bytes = 0;       // of a message
  std::uint32_t stops_in = 0;  // the round of the old group in which the victim is stopped
  bool wakes_in_join = false;  // else it wakes when its peers have given up the next group and made one without it
  bool keeps_handle = false;   // keeps the old group while new ones are made
};

std::string text_of(const scene& now) {
  return std::to_string(now.bytes) + " bytes, stopped in round " + std::to_string(now.stops_in) +
         (now.wakes_in_join ? ", wakes in the join" : ", wakes late") + (now.keeps_handle ? ", old handle kept" : "");
}

// A rank's observations, for the test to compare.
using text = std::array<char, 1024>;
struct answers {
  text old_error, next_error, wrong;
  std::int64_t old_milliseconds, next_milliseconds;
};
struct shared_page {
  std::atomic<std::uint32_t> victims_round, joining, given_up;
  std::array<answers, ranks> of;
};

void put(text& to, const std::string& from) {
  std::copy_n(from.data(), std::min(from.size(), to.size() - 1), to.data());
}

void add_wrong(answers& mine, const std::string& what) {
  put(mine.wrong, std::string(mine.wrong.data()) + what + "; ");
}

std::byte byte_of(char group, std::int32_t from, std::int32_t to, std::uint32_t round, std::size_t at) {
  return static_cast<std::byte>(static_cast<std::size_t>(group) * 31 + static_cast<std::size_t>(from * 7 + to * 3) +
                                round * 13 + at * (at >> 8 | 1));
}

std::vector<std::byte> message(char group, std::int32_t from, std::int32_t to, std::uint32_t round, std::size_t size) {
  std::vector<std::byte> made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = byte_of(group, from, to, round, i);
  return made;
}

std::vector<std::int32_t> peers_of(const shared_memory_communicator& comm) {
  std::vector<std::int32_t> peers;
  for (std::int32_t peer = 0; peer < comm.size(); ++peer)
    if (peer != comm.rank()) peers.push_back(peer);
  return peers;
}

// One round: every rank gathers a word, then each sends each a message. `rooms` outlive the call.
result<void> round_of(shared_memory_communicator& comm, char group, std::uint32_t round,
                      std::vector<std::vector<std::byte>>& rooms, std::chrono::milliseconds within) {
  const auto until = [&] { return call_options{.within = within, .name = "a round"}; };
  const std::size_t size = rooms.front().size();
  auto all = comm.all_gather(message(group, comm.rank(), 0, round, 40), until());
  if (!all) return all.error();
  std::vector<std::vector<std::byte>> sent;
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (const std::int32_t peer : peers_of(comm)) {
    if ((*all)[static_cast<std::size_t>(peer)] != message(group, peer, 0, round, 40))
      return fail(errc::bad_format, "a word of another round or group");
    sent.push_back(message(group, comm.rank(), peer, round, size));
    receives.push_back({peer, rooms[static_cast<std::size_t>(peer)]});
  }
  for (std::size_t i = 0; i < sent.size(); ++i) sends.push_back({receives[i].peer, sent[i]});
  auto started = comm.start_exchange(sends, receives, until());
  if (!started) return started.error();
  if (auto done = started->wait(); !done) return done;
  for (const incoming& one : receives)
    if (rooms[static_cast<std::size_t>(one.peer)] != message(group, one.peer, comm.rank(), round, size))
      return fail(errc::bad_format, "a message of another round or group");
  return {};
}

// A group that must form and work.
void use_group(answers& mine, char group, const std::string& token, std::int32_t rank, std::size_t bytes) {
  auto comm = shared_memory_communicator::join(token, rank, {.within = patient});
  if (!comm) return add_wrong(mine, std::string("group ") + group + ": " + to_string(comm.error()));
  std::vector<std::vector<std::byte>> rooms(ranks, std::vector<std::byte>(bytes));
  for (std::uint32_t round = 0; round < 3; ++round)
    if (auto done = round_of(*comm, group, round, rooms, patient); !done)
      return add_wrong(mine, std::string("group ") + group + ": " + to_string(done.error()));
}

std::int64_t milliseconds_since(clock_type::time_point then) {
  return (clock_type::now() - then) / std::chrono::milliseconds(1);
}

using tokens = std::array<std::string, 4>;  // the old group, the next, one without the victim, the last

void be_rank(shared_page& page, const scene& now, const tokens& of, std::int32_t rank) {
  answers& mine = page.of[static_cast<std::size_t>(rank)];
  std::vector<std::vector<std::byte>> rooms(ranks, std::vector<std::byte>(now.bytes));
  auto old = shared_memory_communicator::join(of[0], rank, {.within = patient});
  if (!old) return add_wrong(mine, "the old group: " + to_string(old.error()));
  result<void> done;
  for (std::uint32_t round = 0; done; ++round) {
    if (rank == victim) page.victims_round = round;
    const auto began = clock_type::now();
    done = round_of(*old, 'A', round, rooms, old_deadline);
    mine.old_milliseconds = milliseconds_since(began);
  }
  put(mine.old_error, to_string(done.error()));
  const auto after_error = rooms;
  result<shared_memory_communicator> kept = fail(errc::cancelled, "not kept");
  if (now.keeps_handle) std::swap(kept, old);
  old = fail(errc::cancelled, "let go");

  if (now.wakes_in_join) {
    ++page.joining;
    use_group(mine, 'B', of[1], rank, now.bytes);
  } else {
    const auto began = clock_type::now();
    const auto next = shared_memory_communicator::join(of[1], rank, {.within = began + join_deadline});
    mine.next_milliseconds = milliseconds_since(began);
    put(mine.next_error, next ? "no error" : to_string(next.error()));
    if (rank != victim) {
      use_group(mine, 'C', of[2], rank == 0 ? 0 : 1, now.bytes);
      ++page.given_up;
    }
  }
  use_group(mine, 'D', of[3], rank, now.bytes);
  if (kept && to_string(kept->status().error()) != mine.old_error.data())
    add_wrong(mine, "the old group has another error now: " + to_string(kept->status().error()));
  if (rooms != after_error) add_wrong(mine, "memory of a call that had failed was written to");
}

template <class Until>
bool wait_until(const Until& until) {
  for (const auto end = clock_type::now() + patient; clock_type::now() < end; std::this_thread::yield())
    if (until()) return true;
  return false;
}

int check(const scene& now, const shared_page& page) {
  int wrong = 0;
  const auto say = [&](std::int32_t rank, const std::string& what) {
    std::printf("%s: rank %d: %s\n", text_of(now).c_str(), rank, what.c_str());
    ++wrong;
  };
  const std::string old_error = page.of[0].old_error.data(), next_error = page.of[0].next_error.data();
  // A peer that waits for the victim in one call may itself be awaited in the next call; then both are named.
  const auto is_of_victim = [](const std::string& problem, const std::string& part) {
    constexpr std::string_view waits = " waiting for ";
    const std::size_t begin = problem.find(waits);
    if (begin == std::string::npos) return false;
    const std::size_t end = problem.find(" in " + part, begin + waits.size());
    return end != std::string::npos && problem.substr(begin, end - begin).find('1') != std::string::npos;
  };
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const answers& its = page.of[static_cast<std::size_t>(rank)];
    if (its.wrong[0] != 0) say(rank, its.wrong.data());
    if (its.old_error.data() != old_error || !is_of_victim(old_error, ""))
      say(rank, std::string("the old group's error is ") + its.old_error.data());
    if (rank != victim && its.old_milliseconds > (old_deadline + grace).count())
      say(rank, "the old group's error came after " + std::to_string(its.old_milliseconds) + " ms");
    if (now.wakes_in_join) continue;
    if (its.next_error.data() != next_error || !is_of_victim(next_error, "joining a group of processes"))
      say(rank, std::string("the next group's error is ") + its.next_error.data());
    if (its.next_milliseconds > (join_deadline + grace).count())
      say(rank, "the next group's error came after " + std::to_string(its.next_milliseconds) + " ms");
  }
  return wrong;
}

int play(const scene& now) {
  void* const memory = ::mmap(nullptr, sizeof(shared_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& page = *new (memory) shared_page{};
  std::vector<shared_memory_group> groups;
  tokens of;
  for (std::size_t i = 0; i < of.size(); ++i) {
    groups.push_back(shared_memory_group::make(i == 2 ? ranks - 1 : ranks).value());
    of[i] = groups.back().token();
  }
  std::vector<pid_t> children;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    ::alarm(120);  // a hang is a failure
    be_rank(page, now, of, rank);
    std::_Exit(0);
  }
  int wrong = 0, status = 0;
  const auto expect = [&](bool is_so, const char* what) {
    if (is_so) return;
    std::printf("%s: %s\n", text_of(now).c_str(), what);
    ++wrong;
  };
  expect(wait_until([&] { return page.victims_round >= now.stops_in; }), "the victim does not come to its round");
  ::kill(children[victim], SIGSTOP);
  expect(::waitpid(children[victim], &status, WUNTRACED) == children[victim] && WIFSTOPPED(status),
         "the victim is not stopped");
  expect(wait_until([&] { return now.wakes_in_join ? page.joining == ranks - 1 : page.given_up == ranks - 1; }),
         "the peers of the stopped rank do not go on without it");
  ::kill(children[victim], SIGCONT);
  for (const pid_t child : children) {
    ::waitpid(child, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a rank was ended by a signal: it hung");
  }
  wrong += check(now, page);
  ::munmap(memory, sizeof(shared_page));
  return wrong;
}

}  // namespace

int main() {
  dice draw(random_seed::seed());
  int wrong = 0;
  bool turn = draw.one_in(2);  // the ordinary run wakes the rank at one moment, in turn
  for (const std::size_t bytes : {std::size_t{500}, std::size_t{100'000}, std::size_t{3'000'000}}) {
    turn = !turn;
    for (const bool wakes_in_join : {false, true}) {
      if (wakes_in_join != turn && !random_seed::runs_are_long()) continue;
      wrong += play({bytes, static_cast<std::uint32_t>(1 + draw.below(39)), wakes_in_join, draw.one_in(2)});
    }
  }
  if (wrong != 0) std::printf("SHARDMESH_SEED=%llu\n", static_cast<unsigned long long>(random_seed::seed()));
  return wrong == 0 ? 0 : 1;
}
