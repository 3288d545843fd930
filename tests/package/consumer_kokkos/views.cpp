// SPDX-License-Identifier: Apache-2.0
// The Views of this program: Kokkos's headers and flags, no import.
#include "views.hpp"

#include <shardmesh/kokkos_view.hpp>

#include <Kokkos_Core.hpp>

namespace {
using matrix = Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace>;
}

void with_matrices(const std::function<void(const shardmesh::tensor_view&, const shardmesh::tensor_view&)>& act) {
  const matrix from("from", 300, 200), to("to", 300, 200);
  Kokkos::parallel_for(Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(0, 300), [=](int row) {
    for (int column = 0; column < 200; ++column) from(row, column) = static_cast<float>(row + column);
  });
  Kokkos::fence();
  act(shardmesh::adapter<matrix>::view(to), shardmesh::adapter<matrix>::view(from));
}
