// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.transfers: transfers of one tensor, random and PyTorch's, and the brute-force model of what every
// element must be, computed from who holds which term of which cell. Tests only.
module;
#include <cstdint>
#include <dice.hpp>
#include <string>
#include <vector>

export module shardmesh.test.transfers;

import shardmesh.transfer;

export namespace transfers {

struct tensor_case {
  shardmesh::extents shape;
  shardmesh::tensor_transfer transfer;
  std::vector<shardmesh::fragment> held;  // all fragments of the source
};

/// Layouts and lists of any ranks of the world, equal, overlapping or disjoint; reductions and casts.
tensor_case random_case(dice& roll, std::int32_t world);

/// PyTorch's cases of redistribution whose meshes have as many ranks as `world`, or fewer.
std::vector<tensor_case> golden_cases(std::int32_t world);

std::string describe(const tensor_case& c);

/// What the source holds of a term at a cell (its row-major number), in one of several runs. Small whole numbers: every
/// dtype holds them and their sums exactly.
double term_value(const tensor_case& c, std::int64_t cell, std::int32_t term, int run);

/// What a destination fragment of `term` must hold at a cell.
double expected(const tensor_case& c, std::int64_t cell, std::int32_t term, int run);

/// A view of one element.
shardmesh::tensor_view scalar(void* data, shardmesh::dtype type);
shardmesh::const_tensor_view scalar(const void* data, shardmesh::dtype type);

}  // namespace transfers
