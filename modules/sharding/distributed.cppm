// SPDX-License-Identifier: Apache-2.0
// distributed: what has a distribution. Not here: the distributions themselves (layout), moving between them
// (transfer).
export module shardmesh.sharding:distributed;

import shardmesh.std;
import shardmesh.transfer;
import :dtensor;
import :metadata;
import :shard;

export namespace shardmesh {

/// A distribution is its own. \errors none
inline result<distribution> distribution_of(const distribution& d) {
  return d;
}

/// What a layout's ranks hold. \errors those of `distribute`
inline result<distribution> distribution_of(const layout& l) {
  return distribute(l);
}

/// Something of which every rank knows who holds what: `distribution_of(d)` yields it, equal on every rank, and slot i
/// of an owner is the i-th of its local tensors. Sharded tensors, dtensors, layouts and distributions are; a type of
/// your own is when such a function is found beside it.
template <class D>
concept distributed = requires(const D& d) {
  { distribution_of(d) } -> std::same_as<result<distribution>>;
};

}  // namespace shardmesh
