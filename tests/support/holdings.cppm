// SPDX-License-Identifier: Apache-2.0
// shardmesh.test.holdings: what ranks hold of random tensors, against a brute-force model: every byte of a tensor is a
// function of its index. Tests only.
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

/// Some tensors: also scalars, and some without elements.
std::vector<tensor_model> random_models(dice& roll);

/// Byte k of an element of the model of that number.
std::byte byte_of(std::size_t number, const shardmesh::extents& shape, const shardmesh::extents& index, std::int64_t k);

/// Some ranks' boxes of a tensor: a layout of a mesh, or a random tiling with replicas.
using boxes_of_ranks = std::vector<std::vector<shardmesh::box>>;
boxes_of_ranks random_boxes(dice& roll, const shardmesh::extents& shape, std::int32_t ranks);

/// What one rank holds of the models, in memory of its own; some parts are strided.
struct holding {
  std::deque<std::vector<std::byte>> memory;
  shardmesh::held_state state;

  void add(std::size_t number, const tensor_model& model, std::span<const shardmesh::box> boxes, bool filled);
  /// What differs from the models of these numbers; empty: nothing.
  std::string differences(std::span<const std::size_t> numbers) const;
};

/// One of each plain kind, and a list.
std::vector<shardmesh::held_object> objects();

}  // namespace holdings
