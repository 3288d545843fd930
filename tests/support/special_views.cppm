// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.special_views: random views (random_views.hpp) with values that are hard for kernels, and the
// comparison of a kernel's memory with the reference's. Tests only.
module;
#include <random_views.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <vector>
export module shardmesh.test.special_views;

import shardmesh.core;

export namespace special_views {

/// A view with random bytes, special values, and small numbers whose sums and products are exact.
random_views::owned_view make(std::mt19937_64& random, const shardmesh::extents& sizes, shardmesh::dtype type,
                              bool broadcast);
/// The same view in a copy of the memory.
shardmesh::tensor_view in_copy(const random_views::owned_view& v, std::vector<std::byte>& memory);
/// Compares the memory of `got` with the expected memory. Returns "" if every element is the same and no other byte
/// changed. Elements that are the same (any two NaNs) are made equal in `expected`.
std::string difference(const random_views::owned_view& got, const shardmesh::tensor_view& wanted,
                       std::vector<std::byte>& expected);

}  // namespace special_views
