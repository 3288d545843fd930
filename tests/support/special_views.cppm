// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.special_views: random views (random_views.hpp) with the values that kernels go wrong on, and the
// comparison of what a kernel left in memory with what the reference did. Tests only.
module;
#include <random_views.hpp>

#include <cstddef>
#include <random>
#include <string>
#include <vector>
export module shardmesh.test.special_views;

import shardmesh.core;

export namespace special_views {

/// Elements of random bytes, of special values and of small numbers, of which sums and products are exact.
random_views::owned_view make(std::mt19937_64& random, const shardmesh::extents& sizes, shardmesh::dtype type,
                              bool broadcast);
/// The same view in a copy of the memory.
shardmesh::tensor_view in_copy(const random_views::owned_view& v, std::vector<std::byte>& memory);
/// Where the memory of `got` is not as it is expected: "" when each element is the same and nothing else was touched.
/// Elements that are the same (any NaN is a NaN) are made equal in `expected`.
std::string difference(const random_views::owned_view& got, const shardmesh::tensor_view& wanted,
                       std::vector<std::byte>& expected);

}  // namespace special_views
