// SPDX-License-Identifier: Apache-2.0
// The distributed suite over MPI. mpirun starts the ranks, and the first ranks run a case with fewer ranks. All ranks
// reach the same verdict, so that they stay together.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fabric.hpp>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "world.hpp"

import shardmesh.mpi;

using namespace shardmesh;

namespace {

constexpr double most_seconds = 600;

// Shares the verdicts of all ranks before the next case, over a communicator that no case uses.
std::vector<std::string> tell_all(std::string_view mine) {
  static mpi_communicator sound = mpi_communicator::from_handle(world_handle()).value();
  const auto all = sound.all_gather(std::as_bytes(std::span(mine)), {.within = in_seconds(most_seconds)});
  std::vector<std::string> texts;
  for (const auto& text : all.value()) texts.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  return texts;
}

std::string run(const mpi_options& options, std::int32_t size, const fabric::rank_body& body) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < size ? 0 : MPI_UNDEFINED, rank, &group);
  std::string wrong;
  std::optional<any_communicator> comm;
  if (group != MPI_COMM_NULL) {
    comm.emplace(mpi_communicator::from_handle(MPI_Comm_c2f(group), options).value());
    MPI_Comm_free(&group);
    try {
      wrong = body(&*comm);
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    if (!wrong.empty()) comm->abort(fail(errc::checksum_mismatch, wrong));
  }
  const std::vector<std::string> all = tell_all(wrong);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!all[i].empty()) return "rank " + std::to_string(i) + ": " + all[i];
  return {};
}

}  // namespace

namespace fabric {

const std::vector<kind>& all() {
  static const std::vector<kind> kinds = [] {
    int world = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    // The ordinary run has each number of ranks in one of both ways, and one rank alone in both.
    const bool has_all = random_seed::runs_are_long() || world == 1;
    std::vector<std::int32_t> direct, staged;
    for (std::int32_t size = world; size >= 1; --size) {
      const bool is_direct = (world - size) % 2 == 0;
      if (has_all || is_direct) direct.push_back(size);
      if (has_all || !is_direct) staged.push_back(size);
    }
    const auto over = [](mpi_options options) {
      return [options](std::int32_t size, const rank_body& body) { return run(options, size, body); };
    };
    return std::vector<kind>{
        {"MPI", direct, over({})},
        {"MPI, staged", staged, over({.read_peer_memory = false, .chunk_bytes = 20'000})},
    };
  }();
  return kinds;
}

std::uint64_t seed() {
  static const std::uint64_t value =
      std::strtoull(tell_all(std::to_string(random_seed::seed())).front().c_str(), nullptr, 10);
  return value;
}

int rounds(int normal) {
  // Threads run the normal number; this transport needs enough to meet each kind of message.
  return random_seed::runs_are_long() ? normal : std::max(1, normal / 5);
}

}  // namespace fabric
