// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.transfers: random transfers of one tensor, PyTorch's transfers, and a brute-force model. The model
// computes every expected element from the holders of each cell's terms. Tests only.
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

/// A random case: layouts and lists over any ranks of the world, equal, overlapping, or disjoint, with reductions and
/// casts.
tensor_case random_case(dice& roll, std::int32_t world);

/// PyTorch's redistribution cases whose meshes have at most `world` ranks.
std::vector<tensor_case> golden_cases(std::int32_t world);

std::string describe(const tensor_case& c);

/// The source's value of a term at a cell (its row-major number), in one of several runs. Small whole numbers: every
/// dtype holds them and their sums exactly.
double term_value(const tensor_case& c, std::int64_t cell, std::int32_t term, int run);

/// The value that a destination fragment of `term` must hold at a cell.
double expected(const tensor_case& c, std::int64_t cell, std::int32_t term, int run);

/// A view of one element.
shardmesh::tensor_view scalar(void* data, shardmesh::dtype type);
shardmesh::const_tensor_view scalar(const void* data, shardmesh::dtype type);

}  // namespace transfers
