// SPDX-License-Identifier: Apache-2.0
// Moves a tensor from rows to columns over the processes of an MPI job: mpirun -n 4 (or any number).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

import shardmesh;
import shardmesh.state;
import shardmesh.tree;
import shardmesh.mpi;

using namespace shardmesh;

namespace {

constexpr std::int64_t rows = 12, columns = 10;

int fail_with(const error& e) {
  return std::fprintf(stderr, "%s\n", to_string(e).c_str()), 1;
}

// Visits this rank's part; element (row, column) is 100 * row + column.
template <class Visit>
void visit_part(const layout& l, std::int32_t rank, host_tensor& part, const Visit& visit) {
  auto* const values = reinterpret_cast<std::int32_t*>(part.bytes().data());
  const extents first = l.first_index(rank), sizes = l.local_shape(rank);
  for (std::int64_t i = 0; i < sizes[0]; ++i)
    for (std::int64_t j = 0; j < sizes[1]; ++j)
      visit(static_cast<std::int32_t>(100 * (first[0] + i) + first[1] + j), values[i * sizes[1] + j]);
}

}  // namespace

int main() {
  auto world = mpi_communicator::world();  // initialises MPI unless it already is
  if (!world) return fail_with(world.error());
  const std::int32_t rank = world->rank();
  const auto mesh = device_mesh::make(extents{world->size()});
  if (!mesh) return fail_with(mesh.error());
  const layout by_rows = layout::make(*mesh, {placement::shard(0)}, {rows, columns}).value();
  const layout by_columns = layout::make(*mesh, {placement::shard(1)}, {rows, columns}).value();

  auto part = host_tensor::make(dtype::int32, by_rows.local_shape(rank)).value();
  auto wanted = host_tensor::make(dtype::int32, by_columns.local_shape(rank)).value();
  visit_part(by_rows, rank, part, [](std::int32_t value, std::int32_t& at) { at = value; });

  const auto from = side_of(by_rows, std::as_const(part));
  const auto to = side_of(by_columns, wanted);
  if (!from) return fail_with(from.error());
  if (!to) return fail_with(to.error());
  if (auto moved = redistribute(*from, *to, *world); !moved) return fail_with(moved.error());

  int wrong = 0;
  visit_part(by_columns, rank, wanted, [&](std::int32_t value, std::int32_t& at) { wrong += at != value; });
  std::printf("rank %d of %d: columns %s, %d wrong\n", rank, world->size(),
              to_string(by_columns.boxes(rank).front().where).c_str(), wrong);
  return wrong == 0 ? 0 : 1;
}
