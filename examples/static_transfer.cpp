// SPDX-License-Identifier: Apache-2.0
// Layouts known at compile time: the compiler checks that they fit, and computes what moves between them and that it is
// minimal. Then four ranks move it.
#include <shardmesh/try.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

import shardmesh;
import shardmesh.layout;
import shardmesh.transfer;

using namespace shardmesh;

// An 8 x 6 weight: trained in rows on four ranks, served in columns on two. Shapes that four ranks do not divide would
// not compile.
constexpr static_extents shape{8, 6};
using training = require_even<static_layout<static_extents{4}, shape, placement::shard(0)>>;
using serving = require_even<static_layout<static_extents{2}, shape, placement::shard(1)>>;
using handover = static_transfer<training, serving>;

static_assert(training::local_shape(0) == extents{2, 6});
static_assert(handover::is_minimal, "somebody sends what its receiver has");
static_assert(handover::bytes_moved <= 160, "more than the network was promised");
static_assert(handover::sends<3>.size() == 2 && handover::receives<3>.empty());

int main() {
  for (const moved_box& m : handover::sends<3>)
    std::printf("rank 3 sends %s to rank %d\n", to_string(m.where).c_str(), m.peer);
  std::printf("%d bytes move\n", int(handover::bytes_moved));

  const auto moved = run_ranks(handover::ranks, [](any_communicator& comm) -> result<void> {
    SHARDMESH_TRY(auto exchange, executor::make(handover::plan(), comm));

    SHARDMESH_TRY(auto rows, host_tensor::zeros(dtype::float32, training::local_shape(comm.rank())));
    for (float& value : rows.values<float>()) value = static_cast<float>(comm.rank());
    const const_tensor_binding from{{view_of(rows)}};
    tensor_binding to;
    host_tensor columns;
    if (comm.rank() < serving::size()) {
      SHARDMESH_TRY(columns, host_tensor::zeros(dtype::float32, serving::local_shape(comm.rank())));
      to.slots.push_back(view_of(columns));
    }
    SHARDMESH_TRY(exchange.run({&from, 1}, {&to, 1}));
    if (comm.rank() == 1) std::printf("row 7 of rank 1 came from rank %g\n", columns.values<float>()[7 * 3]);
    return {};
  });
  if (!moved) return std::fprintf(stderr, "%s\n", to_string(moved.error()).c_str()), 1;
}
