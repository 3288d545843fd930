// SPDX-License-Identifier: Apache-2.0
// Internals that this room's units share: the parts of a layout, and the model behind a distribution. Not exported.
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

// A cut of a tensor dimension, with the mesh dimension that makes it.
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

// Boxes in flat arrays: each box has `rank` numbers in `offsets` and in `sizes`.
struct boxes_view {
  std::span<const std::int64_t> offsets, sizes;
  std::span<const owner_id> owners;
};

// The interface behind a distribution: it answers all questions about the fragments.
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
  // Returns the fragments' intersections with a box as a product, if they form one.
  virtual std::optional<fragment_product> product_within(const box&) const { return std::nullopt; }
  // Visits every owner that may hold a fragment, in ascending order.
  virtual void for_each_owner(function_ref<void(owner_id)> visit) const;

  // Returns the fragments of a list; empty for a grid.
  virtual boxes_view flat() const { return {}; }

  virtual digest128 description_digest() const { return digest(); }
  digest128 digest() const;  // computed once, on demand

 private:
  mutable std::once_flag once_;
  mutable digest128 digest_;
};

}  // namespace shardmesh
