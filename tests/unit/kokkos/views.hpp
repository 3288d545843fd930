// SPDX-License-Identifier: Apache-2.0
// Makes and reads Kokkos::Views in a file with Kokkos's flags (views.cpp), for tests that import. Include it before
// imports.
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace views {

/// A View of random extents, its view by the adapter, and a function that reads an element through Kokkos. Element i,
/// in the View's own index order, has the value i % 97.
struct made_view {
  std::string name;
  shardmesh::tensor_view view;
  std::function<long double(const shardmesh::extents&)> at;
};

/// Makes Views of ranks 0 to 8 and every layout, and parts of them; calls `use` while each lives.
void for_each_view(std::uint64_t seed, const std::function<void(const made_view&)>& use);
/// Names of the failed checks, at compile time or of single Views; "" if all hold.
std::string wrong_properties();
/// Calls `use` with the View that `allocate` makes of these sizes, which have rank 3.
void with_allocated(const shardmesh::extents& sizes, const std::function<void(const shardmesh::tensor_view&)>& use);

}  // namespace views
