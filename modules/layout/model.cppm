// SPDX-License-Identifier: Apache-2.0
// Not exported: what this room's units share: the parts of a layout, and what answers for a distribution.
module shardmesh.layout:model;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :cut;
import :distribution;
import :mesh;
import :placement;
import :product;
import :split_rule;
import :tensor_layout;

namespace shardmesh {

// A cut of a tensor dimension and the mesh dimension that makes it.
struct mesh_cut {
  std::size_t mesh_dim = 0;
  dimension_cut cut;
};

struct layout::description {
  device_mesh mesh;
  std::vector<placement> placements;
  extents shape;
  std::vector<split_rule> rules;
  std::vector<std::vector<mesh_cut>> cuts;  // per tensor dimension, in mesh order
  reduce_op reduction = reduce_op::none;
  std::int64_t divisor = 1;
  std::int64_t terms = 1;

  std::vector<index_run> runs(const extents& coordinate, std::size_t dim) const;
};

// Boxes in flat arrays: `rank` numbers each in offsets and sizes.
struct boxes_view {
  std::span<const std::int64_t> offsets, sizes;
  std::span<const owner_id> owners;
};

// What answers for a distribution.
struct distribution::model {
  extents shape;
  owner_space space = owner_space::ranks;
  owner_id owners = 0;
  reduce_op reduction = reduce_op::none;
  std::int64_t divisor = 1;
  std::int32_t terms = 1;
  bool is_complete = false;  // covers the tensor without overlap, by construction

  model() = default;
  model(const model&) = delete;
  virtual ~model() = default;
  virtual std::int64_t fragment_count() const = 0;
  virtual void fragments_of(owner_id owner, fragment_visitor visit) const = 0;
  virtual void overlapping(const box& where, fragment_visitor visit) const = 0;
  // What the fragments share with a box, where it is a product.
  virtual std::optional<fragment_product> product_within(const box&) const { return std::nullopt; }
  // Every owner that may hold something, ascending.
  virtual void for_each_owner(function_ref<void(owner_id)> visit) const;

  // The fragments of a list; nothing for a grid.
  virtual boxes_view flat() const { return {}; }

  virtual digest128 description_digest() const { return digest(); }
  digest128 digest() const;  // computed once, on demand

 private:
  mutable std::once_flag once_;
  mutable digest128 digest_;
};

}  // namespace shardmesh
