// SPDX-License-Identifier: Apache-2.0
// distributed: what has a distribution, and the questions that can be asked of whatever has one. Not here: the
// distributions themselves (distribution), moving between them (transfer).
export module shardmesh.layout:distributed;

import shardmesh.std;
import shardmesh.core;
import :cover;
import :distribution;
import :tensor_layout;

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

/// What is distributed but is not a distribution, whose distribution may thus fail to exist.
template <class D>
concept distributed_object = distributed<D> && !std::same_as<D, distribution>;

/// The fragments of one owner, in slot order; none for an owner that holds nothing. `distribution::fragments_of` visits
/// them without a list. \errors those of `distribution_of`. Cost: O(result), on lists + O(log n).
template <distributed D>
result<std::vector<fragment>> fragments_of(const D& d, owner_id owner) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  std::vector<fragment> found;
  held->fragments_of(owner, [&](const fragment& one) {
    found.push_back(one);
    return true;
  });
  return found;
}

/// Whether the fragments cover the tensor, as `check_cover` of a distribution. \errors those of `distribution_of`
template <distributed_object D>
result<cover_report> check_cover(const D& d, std::size_t max_problems = 100) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return check_cover(*held, max_problems);
}

}  // namespace shardmesh
