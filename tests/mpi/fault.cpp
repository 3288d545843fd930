// SPDX-License-Identifier: Apache-2.0
// Run by faults.py under mpirun: the last rank sends itself a signal at a phase; the others print their error and its
// time.
//   mpi_fault PHASE SIGNAL SECONDS read|staged       SECONDS: the deadline of every call
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.mpi;

namespace {

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

struct scene {
  std::string phase;
  int signal = 0;
  double seconds = 0;
  bool is_victim = false;
  void reached(const char* name) const {
    if (is_victim && phase == name) std::raise(signal);
  }
};

// Every rank sends every rank the same large message, again and again.
result<void> run(mpi_communicator& comm, const scene& now, clock_type::time_point& call_began) {
  const std::size_t size = 8 << 20;
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::byte> mine(size, std::byte{1});
  std::vector<std::vector<std::byte>> theirs(ranks, std::vector<std::byte>(size));
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::int32_t peer = 0; peer < comm.size(); ++peer) {
    if (peer == comm.rank()) continue;
    sends.push_back({peer, mine});
    receives.push_back({peer, theirs[static_cast<std::size_t>(peer)]});
  }
  const auto options = [&] {
    call_began = clock_type::now();
    return call_options{.within = call_began + std::chrono::milliseconds(static_cast<int>(now.seconds * 1000))};
  };
  std::jthread killer;
  for (int round = 0; round < 1000; ++round) {
    if (round == 3) now.reached("gather");
    if (const auto all = comm.all_gather(mine, options()); !all) return all.error();
    if (round == 3) now.reached("exchange");
    if (round == 3 && now.is_victim && now.phase == "moving")
      killer = std::jthread([&now] {
        std::this_thread::sleep_for(std::chrono::milliseconds(13));
        now.reached("moving");
      });
    auto work = comm.start_exchange(sends, receives, options());
    if (!work) return work.error();
    if (round == 3) now.reached("started");
    if (const auto done = work->wait(); !done) return done.error();
    if (round == 3 && now.phase == "leaving" && now.is_victim) std::exit(0);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  auto comm = mpi_communicator::world({.read_peer_memory = std::string(argv[4]) == "read"});
  if (!comm) return std::fprintf(stderr, "%s\n", to_string(comm.error()).c_str()), 2;
  const int victim = comm->size() - 1;
  const scene now{argv[1], std::atoi(argv[2]), std::atof(argv[3]), comm->rank() == victim};
  std::printf("process %d %d\n", comm->rank(), static_cast<int>(getpid()));
  std::fflush(stdout);
  clock_type::time_point call_began;
  const auto done = run(*comm, now, call_began);
  const double took = std::chrono::duration<double>(clock_type::now() - call_began).count();
  std::printf("survivor %d %.3f %s\n", comm->rank(), took, done ? "no error" : to_string(done.error()).c_str());
  std::fflush(stdout);
  const int rank = comm->rank();
  const auto leaving = clock_type::now();
  comm = fail(errc::ok, "");  // releases MPI
  std::printf("left %d %.3f\n", rank, std::chrono::duration<double>(clock_type::now() - leaving).count());
  return 1;
}
