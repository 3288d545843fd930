// SPDX-License-Identifier: Apache-2.0
// The distributed suite over processes of this machine: shared_memory_distributed RANKS [Catch2 arguments...] forks
// that many.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <rank_session.hpp>
#include <string>
#include <vector>

import shardmesh.shared_memory;

using namespace shardmesh;

shared_memory_communicator& world_communicator();

namespace {
shared_memory_communicator* world = nullptr;
}

// A communicator over all processes. No case uses it for its own messages, so that poisoning does not spread.
shared_memory_communicator& world_communicator() {
  return *world;
}

int main(int argc, char** argv) {
  const std::int32_t ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  auto group = shared_memory_group::make(ranks);
  if (!group) return std::fprintf(stderr, "%s\n", to_string(group.error()).c_str()), 2;
  std::vector<pid_t> children;
  std::int32_t rank = 0;
  for (std::int32_t other = 1; other < ranks && rank == 0; ++other) {
    const pid_t child = ::fork();
    if (child == 0) rank = other;
    children.push_back(child);
  }
  auto joined = shared_memory_communicator::join(group->token(), rank);
  if (!joined) return std::fprintf(stderr, "rank %d: %s\n", rank, to_string(joined.error()).c_str()), 2;
  world = &*joined;
  argv[1] = argv[0];
  int wrong = run_rank_session(argc - 1, argv + 1, rank) == 0 ? 0 : 1;
  if (rank != 0) return wrong;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) wrong = 1;
  }
  return wrong;
}
