// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.holdings: random tensors held by ranks, against a brute-force model in which every byte of a tensor is
// a function of its index. Tests only.
module;
#include <cstddef>
#include <cstdint>
#include <deque>
#include <dice.hpp>
#include <span>
#include <string>
#include <vector>

export module shardmesh.test.holdings;

import shardmesh.collective_checkpoint;

export namespace holdings {

struct tensor_model {
  shardmesh::path where;
  shardmesh::extents shape;
  shardmesh::dtype type = shardmesh::dtype::float32;
};

/// A few random tensors, including scalars and empty ones.
std::vector<tensor_model> random_models(dice& roll);

/// Byte k of one element of model `number`.
std::byte byte_of(std::size_t number, const shardmesh::extents& shape, const shardmesh::extents& index, std::int64_t k);

/// For each rank, its boxes of a tensor: from a layout over a mesh, or a random tiling with replicas.
using boxes_of_ranks = std::vector<std::vector<shardmesh::box>>;
boxes_of_ranks random_boxes(dice& roll, const shardmesh::extents& shape, std::int32_t ranks);

/// One rank's parts of the models, in its own memory; some parts are strided.
struct holding {
  std::deque<std::vector<std::byte>> memory;
  shardmesh::local_state state;

  void add(std::size_t number, const tensor_model& model, std::span<const shardmesh::box> boxes, bool filled);
  /// The differences from the models with these numbers; empty if none.
  std::string differences(std::span<const std::size_t> numbers) const;
};

/// One object of each plain kind, and a list.
std::vector<shardmesh::local_state_object> objects();

}  // namespace holdings
