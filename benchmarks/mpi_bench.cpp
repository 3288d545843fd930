// SPDX-License-Identifier: Apache-2.0
// All-to-all-v over MPI: mpi_communicator against MPI_Alltoallv, the same bytes, alternating. Run it with mpirun.
//   shardmesh_mpi_bench BYTES ROUNDS [read|staged [CHUNK]]      BYTES: from each rank to each other
// Rank 0 prints {"ranks":N,"bytes":N,"alltoallv_ms":[..],"exchange_ms":[..]}; a round takes as long as its slowest
// rank.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.mpi;

namespace {

// Returns the milliseconds of the slowest rank.
template <class Work>
double timed(const Work& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  work();
  double mine = 1e3 * (MPI_Wtime() - start), slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void print(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\":[", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ",", values[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  using namespace shardmesh;
  if (argc < 3) return 2;
  const std::size_t size = std::strtoull(argv[1], nullptr, 10);
  const int rounds = std::atoi(argv[2]);
  mpi_options options{.read_peer_memory = argc < 4 || std::string(argv[3]) == "read"};
  if (argc > 4) options.chunk_bytes = std::atoll(argv[4]);
  auto comm = mpi_communicator::world(options);
  if (!comm) return std::fprintf(stderr, "%s\n", to_string(comm.error()).c_str()), 1;
  const auto ranks = static_cast<std::size_t>(comm->size()), self = static_cast<std::size_t>(comm->rank());
  std::vector<std::byte> from(ranks * size, static_cast<std::byte>(self)), to(ranks * size);
  std::vector<int> counts(ranks, static_cast<int>(size)), places(ranks);
  for (std::size_t i = 0; i < ranks; ++i) places[i] = static_cast<int>(i * size);
  counts[self] = 0;
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::size_t i = 1; i < ranks; ++i) {
    const std::size_t next = (self + i) % ranks, before = (self + ranks - i) % ranks;
    sends.push_back({static_cast<std::int32_t>(next), std::span(from).subspan(next * size, size)});
    receives.push_back({static_cast<std::int32_t>(before), std::span(to).subspan(before * size, size)});
  }
  std::vector<double> theirs, ours;
  bool failed = false;
  for (int round = -2; round < rounds; ++round) {  // the first two warm up
    const double raw = timed([&] {
      MPI_Alltoallv(from.data(), counts.data(), places.data(), MPI_BYTE, to.data(), counts.data(), places.data(),
                    MPI_BYTE, MPI_COMM_WORLD);
    });
    const double own = timed([&] {
      const call_options options{.within = std::chrono::seconds(60)};
      auto work = comm->start_exchange(sends, receives, options);
      failed |= !work || !work->wait();
    });
    if (round < 0) continue;
    theirs.push_back(raw);
    ours.push_back(own);
  }
  if (self == 0) {
    std::printf("{\"ranks\":%zu,\"bytes\":%zu,", ranks, size);
    print("alltoallv_ms", theirs);
    std::printf(",");
    print("exchange_ms", ours);
    std::printf("}\n");
  }
  return failed ? 1 : 0;
}
