// SPDX-License-Identifier: Apache-2.0
// Run by save_faults.py under mpirun. Ranks save a checkpoint, then save another over it, during which one rank sends
// itself a signal at a phase. The others print their error, its time, and the state of the disk.
//   save_fault PHASE VICTIM SIGNAL SECONDS FOLDER       SECONDS: the deadline of the second save
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

import shardmesh.collective_checkpoint;
import shardmesh.mpi;

namespace {

using namespace shardmesh;
using clock_type = std::chrono::steady_clock;

constexpr std::int64_t rows = 4096, width = 64;

local_state held_rows(std::vector<std::int32_t>& memory, std::int32_t rank, std::int32_t ranks) {
  const box mine{{rank * rows, 0}, {rows, width}};
  const tensor_view view{reinterpret_cast<std::byte*>(memory.data()), dtype::int32, {}, mine.sizes, {width, 1}};
  local_state held;
  held.tensors.push_back({{"w"}, {ranks * rows, width}, dtype::int32, {{mine, view}}});
  held.objects.push_back({{"step"}, {}, {std::int64_t{memory.front()}}});
  return held;
}

// Describes the checkpoint as one process reads it: complete, or an error.
std::string seen(const std::filesystem::path& checkpoint) {
  auto reader = open_checkpoint(checkpoint);
  if (!reader) return to_string(reader.error());
  const auto checked = verify(**reader);
  if (!checked) return to_string(checked.error());
  if (!checked->ok()) return to_string(checked->problems.front());
  const auto whole = load_tensor(**reader, "w");
  if (!whole) return to_string(whole.error());
  const auto* const values = reinterpret_cast<const std::int32_t*>(whole->bytes().data());
  for (std::size_t i = 0; i < whole->bytes().size() / 4; ++i)
    if (values[i] != 7) return "another value";
  return "old";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  auto world = mpi_communicator::world();
  if (!world) return std::fprintf(stderr, "%s\n", to_string(world.error()).c_str()), 2;
  const std::int32_t rank = world->rank();
  const bool is_victim = rank == std::atoi(argv[2]);
  const std::filesystem::path folder = argv[5], checkpoint = folder / "step";
  std::printf("process %d %d\n", rank, static_cast<int>(getpid()));
  std::fflush(stdout);
  std::string text = "no error";
  double took = 0;
  {
    mpi_communicator& comm = *world;
    std::vector<std::int32_t> memory(static_cast<std::size_t>(rows * width), 7);
    rank_save_options options{.overwrite = true};
    const auto first = save(checkpoint, held_rows(memory, rank, comm.size()), comm, options);
    if (!first) return std::fprintf(stderr, "%s\n", to_string(first.error()).c_str()), 2;
    memory.assign(memory.size(), 8);
    options.before = [&](save_phase now) -> result<void> {
      if (is_victim && static_cast<int>(now) == std::atoi(argv[1])) std::raise(std::atoi(argv[3]));
      return {};
    };
    const auto began = clock_type::now();
    options.within = began + std::chrono::milliseconds(static_cast<int>(std::atof(argv[4]) * 1000));
    const auto report = save(checkpoint, held_rows(memory, rank, comm.size()), comm, options);
    took = std::chrono::duration<double>(clock_type::now() - began).count();
    if (!report) text = to_string(report.error());
  }
  std::printf("survivor %d %.3f %s\n", rank, took, text.c_str());
  std::fflush(stdout);
  // The other ranks may need a moment to remove the temporary folder.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto left = std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  std::printf("seen %d %d %s\n", rank, static_cast<int>(left), seen(checkpoint).c_str());
  std::fflush(stdout);
  world = fail(errc::ok, "");  // releases MPI
  std::printf("left %d\n", rank);
  return 1;
}
