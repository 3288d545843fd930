// SPDX-License-Identifier: Apache-2.0
// An at::Tensor sharded by rows over four ranks becomes one sharded by columns, unevenly. The ranks are threads; in
// processes started by torch.distributed, only the communicator differs:
//     auto comm = c10d_communicator::named(group_name);  // import shardmesh.torch; group.group_name in Python
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <shardmesh/torch_tensor.hpp>
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

import shardmesh;

using namespace shardmesh;

result<void> rows_to_columns(communicator_ref comm) {
  const device_mesh mesh = parse_mesh("tp=4").value();
  const layout rows = layout::make(mesh, {placement::shard(0)}, {10, 6}).value();
  const layout columns = layout::make(mesh, {placement::shard(1)}, {10, 6}).value();
  const at::Tensor whole = at::arange(60, at::kFloat).view({10, 6});

  // This rank's rows are a view into the whole: nothing is copied.
  const at::Tensor mine = whole.narrow(0, rows.first_index(comm.rank())[0], rows.local_shape(comm.rank())[0]);
  SHARDMESH_TRY(auto tensor, dtensor<at::Tensor>::make(rows, comm.rank(), mine));
  SHARDMESH_TRY(auto moved, redistribute(tensor, columns, comm));

  const extents first = columns.first_index(comm.rank()), sizes = columns.local_shape(comm.rank());
  if (!at::equal(moved.local(), whole.narrow(1, first[1], sizes[1])))
    return fail(errc::checksum_mismatch, "these are not this rank's columns");
  if (comm.rank() == 0)
    std::printf("rank 0 has rows %s and then columns %s\n", to_string(rows.local_shape(0)).c_str(),
                to_string(sizes).c_str());
  return {};
}

int main() {
  const auto ran = run_ranks(4, [](any_communicator& comm) { return rows_to_columns(comm); });
  if (!ran) std::fprintf(stderr, "%s\n", to_string(ran.error()).c_str());
  return ran ? 0 : 1;
}
