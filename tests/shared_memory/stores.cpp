// SPDX-License-Identifier: Apache-2.0
// A rank is killed before each of its stores into the shared segment, one run per store. The survivors soon return an
// error that names it, and everything that they received before is right. The segment is write-protected in that rank:
// each store faults, is counted, and is single-stepped. Rings are smaller than the messages, which go both ways at
// once. The victim leaves or aborts after its last call, so that runs that end before are made once. Two processes
// share the runs, because survivors mostly wait. Prints one line per wrong run, and one with the number of stores.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

import shardmesh.shared_memory;

#if !defined(__x86_64__)
int main() {
  std::puts("skipped: stores are stepped over on x86-64 only");
}
#else

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr std::int32_t ranks = 3, victim = 1;
constexpr std::chrono::seconds join_deadline{1}, deadline{10}, grace{4};

// --- the victim's side ---
bool is_victim = false;
void* segment_at = nullptr;
std::size_t segment_bytes = 0;
volatile std::int64_t stores = 0, kill_at = 0;  // 0: never
std::int64_t* counted = nullptr;                // shared with the parent

void protect(int how) {
  ::mprotect(segment_at, segment_bytes, how);
}

void on_store(int, siginfo_t* info, void* context) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  const auto* begin = static_cast<const std::byte*>(segment_at);
  if (at < begin || at >= begin + segment_bytes) std::_Exit(99);
  stores = stores + 1;
  *counted = stores;
  if (stores == kill_at) ::kill(::getpid(), SIGKILL);
  protect(PROT_READ | PROT_WRITE);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= 0x100;  // trap after this instruction
}

void after_store(int, siginfo_t*, void* context) {
  protect(PROT_READ);
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
}

void watch_stores() {
  is_victim = true;
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = on_store;
  ::sigaction(SIGSEGV, &action, nullptr);
  action.sa_sigaction = after_store;
  ::sigaction(SIGTRAP, &action, nullptr);
}

}  // namespace

// Replaces mmap for the library's calls.
extern "C" void* mmap(void* at, size_t size, int rights, int flags, int file, off_t offset) noexcept {
  void* const made = reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, rights, flags, file, offset));
  if (is_victim && segment_at == nullptr && made != MAP_FAILED && (flags & MAP_SHARED) != 0 && file >= 0) {
    segment_at = made;
    segment_bytes = size;
    protect(PROT_READ);
  }
  return made;
}

namespace {

// --- all ranks ---
std::vector<std::byte> message(std::int32_t from, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from));
  return bytes;
}

// Each rank sends each rank a message that is larger than a ring, and lent.
result<void> exchange(shared_memory_communicator& comm, std::size_t size, const call_options& options) {
  const std::vector<std::byte> mine = message(comm.rank(), size);
  std::vector<std::vector<std::byte>> theirs(ranks, std::vector<std::byte>(size));
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::int32_t peer = 0; peer < ranks; ++peer)
    if (peer != comm.rank()) {
      sends.push_back({peer, mine});
      receives.push_back({peer, theirs[static_cast<std::size_t>(peer)]});
    }
  auto started = comm.start_exchange(sends, receives, options);
  if (!started) return started.error();
  if (auto done = started->wait(); !done) return done;
  for (const incoming& one : receives)
    if (theirs[static_cast<std::size_t>(one.peer)] != message(one.peer, size))
      return fail(errc::bad_format, "the bytes are not those that were sent");
  return {};
}

result<void> all_calls(shared_memory_communicator& comm) {
  const call_options options{.within = deadline};
  if (auto done = exchange(comm, 6000, options); !done) return done;
  if (auto done = exchange(comm, 40000, options); !done) return done;
  auto all = comm.all_gather(message(comm.rank(), 100), options);
  if (!all) return all.error();
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    if ((*all)[static_cast<std::size_t>(rank)] != message(rank, 100))
      return fail(errc::bad_format, "the gathered bytes are not those that were given");
  return {};
}

int be_victim(const std::string& token, bool aborts) {
  auto comm = shared_memory_communicator::join(token, victim, {.within = join_deadline});
  if (!comm || !all_calls(*comm)) return 1;
  if (aborts) comm->abort(fail(errc::no_space, "the victim gives up"));
  return 0;
}

// Finally waits in vain for the victim.
int survive(const std::string& token, std::int32_t rank, const std::string& run) {
  ::alarm(30);
  const auto began = clock_type::now();
  error problem;
  auto comm = shared_memory_communicator::join(token, rank, {.within = began + join_deadline});
  if (comm) {
    auto done = all_calls(*comm);
    if (done) done = exchange(*comm, 500, {.within = deadline});
    if (!done) problem = done.error();
  } else {
    problem = comm.error();
  }
  const auto took = clock_type::now() - began;
  const bool names = std::find(problem.ranks.begin(), problem.ranks.end(), victim) != problem.ranks.end();
  const bool is_known = problem.code == errc::communication || problem.code == errc::no_space ||
                        (problem.code == errc::deadline_exceeded && !comm);
  if (names && is_known && took < grace) return 0;
  std::printf("%s: rank %d has after %.2f s: %s\n", run.c_str(), rank, std::chrono::duration<double>(took).count(),
              problem.code == errc::ok ? "no error" : to_string(problem).c_str());
  return 1;
}

pid_t in_child(const std::function<int()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int status = work();
  std::fflush(stdout);
  std::_Exit(status);
}

// Returns whether all went well.
bool run(std::int64_t at, bool aborts) {
  const auto group = shared_memory_group::make(ranks, {.buffer_bytes = 4096});
  if (!group) return std::printf("%s\n", to_string(group.error()).c_str()), false;
  const std::string name = std::string(aborts ? "abort" : "leave") + ", killed before store " + std::to_string(at);
  *counted = 0;
  bool good = true;
  std::vector<pid_t> survivors;
  const pid_t killed = in_child([&] {
    kill_at = at;
    watch_stores();
    return be_victim(group->token(), aborts);
  });
  for (const std::int32_t rank : {0, 2})
    survivors.push_back(in_child([&] { return survive(group->token(), rank, name); }));
  int status = 0;
  ::waitpid(killed, &status, 0);
  // The number of a rank's sleeps, and so of its stores, differs between runs.
  const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  const bool is_over = WIFEXITED(status) && WEXITSTATUS(status) == 0 && (at == 0 || *counted < at);
  const bool as_planned = is_over || (at != 0 && was_killed);
  if (!as_planned) std::printf("%s: the victim ended with %d\n", name.c_str(), status), good = false;
  for (const pid_t one : survivors) {
    ::waitpid(one, &status, 0);
    if (!WIFEXITED(status)) std::printf("%s: a survivor was ended by a signal: it hung\n", name.c_str());
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good;
}

// The number of the victim's stores, in memory that its parent shares with it.
bool share_counter() {
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  counted = page == MAP_FAILED ? nullptr : static_cast<std::int64_t*>(page);
  return counted != nullptr;
}

// Kills the victim before every `workers`-th of these stores, from number `worker` on. Returns the number of wrong
// runs.
int kill_before(const std::vector<std::int64_t>& chosen, bool aborts, std::size_t worker, std::size_t workers) {
  if (!share_counter()) return 1;
  int wrong = 0;
  for (std::size_t i = worker; i < chosen.size(); i += workers) wrong += run(chosen[i], aborts) ? 0 : 1;
  return std::min(wrong, 99);  // an exit status
}

// Returns whether all runs of one ending went well.
bool check_all(std::int64_t step, bool aborts) {
  bool good = run(0, aborts);
  const std::int64_t total = *counted;
  std::vector<std::int64_t> chosen;
  const auto next = [&](std::int64_t at) {
    if (at < 40) return at + 1;
    return at + 80 > total ? at + (step < 100 ? 1 : 2) : std::min(at + step, total - 79);
  };
  for (std::int64_t at = aborts ? std::max<std::int64_t>(1, total - 79) : 1; at <= total; at = next(at))
    chosen.push_back(at);
  constexpr std::size_t workers = 2;
  std::vector<pid_t> children;
  for (std::size_t worker = 0; worker < workers; ++worker)
    children.push_back(in_child([&] { return kill_before(chosen, aborts, worker, workers); }));
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::printf("%s: %lld stores, killed before %zu of them\n", aborts ? "abort" : "leave", static_cast<long long>(total),
              chosen.size());
  if (total < 100) std::printf("too few stores: is the segment protected?\n"), good = false;
  return good;
}

}  // namespace

// shared_memory_stores [STEP]: all stores of joining, leaving, and aborting, and every STEP-th store between. With a
// STEP of 100 or more, every second store of leaving and of aborting.
int main(int argc, char** argv) {
  if (!share_counter()) return std::perror("mmap"), 2;
  const std::int64_t step = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  const bool leaves = check_all(step, false), aborts = check_all(step, true);
  return leaves && aborts ? 0 : 1;
}
#endif
