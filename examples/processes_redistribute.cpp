// SPDX-License-Identifier: Apache-2.0
// Four processes of this machine, without MPI or any launcher, redistribute a tensor: its rows become columns.
#include <sys/wait.h>
#include <unistd.h>
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.shared_memory;

using namespace shardmesh;

namespace {

constexpr std::int32_t ranks = 4;

std::span<std::int32_t> numbers_of(host_tensor& tensor) {
  return {reinterpret_cast<std::int32_t*>(tensor.bytes().data()), tensor.bytes().size() / sizeof(std::int32_t)};
}

// Redistributes a 6 x 8 tensor whose element (row, column) is 100 * row + column.
result<void> lay_out_anew(shared_memory_communicator& world) {
  const auto mesh = device_mesh::make({ranks}).value();
  const layout rows = layout::make(mesh, {placement::shard(0)}, {6, 8}).value();
  const layout columns = layout::make(mesh, {placement::shard(1)}, {6, 8}).value();
  const std::int32_t rank = world.rank();

  auto mine = dtensor<host_tensor>::allocate(rows, rank, dtype::int32).value();
  const auto first_row = static_cast<std::int32_t>(rows.first_index(rank)[0]);
  std::int32_t at = 0;
  for (std::int32_t& number : numbers_of(mine.local())) number = 100 * (first_row + at / 8) + at % 8, ++at;

  SHARDMESH_TRY(auto moved, redistribute(mine, columns, world));
  const auto found = numbers_of(moved.local());
  std::printf("rank %d: columns %d to %d of the last row\n", rank, found[found.size() - 2], found.back());
  return {};
}

int run(const std::string& token, std::int32_t rank) {
  auto world = shared_memory_communicator::join(token, rank);
  const result<void> done = world ? lay_out_anew(*world) : world.error();
  if (!done) std::fprintf(stderr, "rank %d: %s\n", rank, to_string(done.error()).c_str());
  std::fflush(nullptr);
  return done ? 0 : 1;
}

}  // namespace

int main() {
  const auto group = shared_memory_group::make(ranks).value();
  for (std::int32_t rank = 1; rank < ranks; ++rank)
    if (::fork() == 0) std::_Exit(run(group.token(), rank));
  int failed = run(group.token(), 0);
  for (int status = 0; ::wait(&status) > 0;) failed += status == 0 ? 0 : 1;
  return failed;
}
