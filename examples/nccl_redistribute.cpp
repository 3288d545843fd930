// SPDX-License-Identifier: Apache-2.0
// Moves a tensor from rows to columns over the GPUs of this machine. Ranks are threads with one GPU each; NCCL moves
// the elements that change GPUs. Without a GPU it prints the reason.
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

import shardmesh.transfer;
import shardmesh.nccl;

using namespace shardmesh;

namespace {

constexpr std::int64_t rows = 12, columns = 10;

// Visits this rank's part; element (row, column) is 100 * row + column.
template <class Visit>
void visit_part(const layout& l, std::int32_t rank, host_tensor& part, const Visit& visit) {
  const auto values = part.values<std::int32_t>();
  const extents first = l.first_index(rank), sizes = l.local_shape(rank);
  for (std::int64_t i = 0; i < sizes[0]; ++i)
    for (std::int64_t j = 0; j < sizes[1]; ++j)
      visit(static_cast<std::int32_t>(100 * (first[0] + i) + first[1] + j),
            values[static_cast<std::size_t>(i * sizes[1] + j)]);
}

// One rank's work. `control` carries the ranks' messages to each other, NCCL the tensors' bytes.
result<void> turn_over(any_communicator& control) {
  const std::int32_t rank = control.rank();
  const device gpu{device_type::cuda, static_cast<std::int16_t>(rank)};
  SHARDMESH_TRY(auto comm, nccl_communicator::make(control, gpu));

  SHARDMESH_TRY(const auto mesh, device_mesh::make(extents{control.size()}));
  SHARDMESH_TRY(const layout by_rows, layout::make(mesh, {placement::shard(0)}, {rows, columns}));
  SHARDMESH_TRY(const layout by_columns, layout::make(mesh, {placement::shard(1)}, {rows, columns}));

  SHARDMESH_TRY(auto numbers, host_tensor::make(dtype::int32, by_rows.local_shape(rank)));
  visit_part(by_rows, rank, numbers, [](std::int32_t value, std::int32_t& at) { at = value; });
  SHARDMESH_TRY(auto part, device_tensor::make(dtype::int32, by_rows.local_shape(rank), gpu));
  SHARDMESH_TRY(auto wanted, device_tensor::make(dtype::int32, by_columns.local_shape(rank), gpu));
  SHARDMESH_TRY(copy_between(view_of(part), view_of(std::as_const(numbers))));

  SHARDMESH_TRY(const auto from, side_of(by_rows, std::as_const(part)));
  SHARDMESH_TRY(const auto to, side_of(by_columns, wanted));
  SHARDMESH_TRY(redistribute(from, to, comm));

  SHARDMESH_TRY(auto back, host_tensor::make(dtype::int32, by_columns.local_shape(rank)));
  SHARDMESH_TRY(copy_between(view_of(back), view_of(std::as_const(wanted))));
  int wrong = 0;
  visit_part(by_columns, rank, back, [&](std::int32_t value, std::int32_t& at) { wrong += at != value; });
  std::printf("rank %d of %d on %s: %s of [12, 10], %d wrong\n", rank, control.size(), to_string(gpu).c_str(),
              to_string(by_columns.local_shape(rank)).c_str(), wrong);
  return wrong == 0 ? result<void>{} : fail(errc::checksum_mismatch, "other numbers").with_rank(rank);
}

}  // namespace

int main() {
  const auto runtime = cuda::runtime::load();
  const auto gpus = runtime ? runtime->device_count() : result<std::int32_t>(runtime.error());
  const auto scope = gpus ? cuda_scope::open() : result<cuda_scope>(gpus.error());
  if (!scope) return std::printf("not run, for there is no GPU here: %s\n", to_string(scope.error()).c_str()), 0;

  const auto done = run_ranks(*gpus, [](any_communicator& control) { return turn_over(control); });
  if (!done) return std::fprintf(stderr, "%s\n", to_string(done.error()).c_str()), 1;
}
