// SPDX-License-Identifier: Apache-2.0
// Kokkos::Views made and read in a file of Kokkos's flags (views.cpp), for tests that import. Include before imports.
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace views {

/// A View of random extents (element i, in the View's own index order, has the value i % 97), what its adapter says,
/// and what reads an element through Kokkos.
struct made_view {
  std::string name;
  shardmesh::tensor_view view;
  std::function<long double(const shardmesh::extents&)> at;
};

/// Views of ranks 0 to 8 and every layout, and parts of them; calls `use` while each lives.
void for_each_view(std::uint64_t seed, const std::function<void(const made_view&)>& use);
/// Names of the checks that hold at compile time or of single Views, which did not: "".
std::string wrong_properties();
/// The View that `allocate` makes of these sizes, of rank 3.
void with_allocated(const shardmesh::extents& sizes, const std::function<void(const shardmesh::tensor_view&)>& use);

}  // namespace views
