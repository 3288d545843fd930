// SPDX-License-Identifier: Apache-2.0
// distributed: the concept of an object with a distribution, and functions over all such objects. Distributions
// themselves are in `distribution`; moving between them is in room transfer.
export module shardmesh.layout:distributed;

import shardmesh.std;
import shardmesh.core;
import :cover;
import :distribution;
import :tensor_layout;

export namespace shardmesh {

/// Returns the distribution itself. \errors none
inline result<distribution> distribution_of(const distribution& d) {
  return d;
}

/// Returns the distribution of a layout's ranks. \errors those of `distribute`
inline result<distribution> distribution_of(const layout& l) {
  return distribute(l);
}

/// An object whose fragments and owners every rank knows. `distribution_of(d)` yields its distribution, equal on every
/// rank; slot i of an owner is the i-th of its local tensors. Sharded tensors, dtensors, layouts, and distributions
/// model it, as does any type with a `distribution_of` that argument-dependent look-up finds.
template <class D>
concept distributed = requires(const D& d) {
  { distribution_of(d) } -> std::same_as<result<distribution>>;
};

/// A distributed object other than a distribution: `distribution_of` may return an error.
template <class D>
concept distributed_object = distributed<D> && !std::same_as<D, distribution>;

/// Returns the fragments of one owner, in slot order; none for an owner that holds nothing.
/// `distribution::fragments_of` visits them without a list. \errors those of `distribution_of`. Cost: O(result), plus
/// O(log n) for a distribution that is a list of n fragments.
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

/// Checks that the fragments cover the tensor, as `check_cover` does for a distribution. \errors those of
/// `distribution_of`
template <distributed_object D>
result<cover_report> check_cover(const D& d, std::size_t max_problems = 100) {
  const auto held = distribution_of(d);
  if (!held) return held.error();
  return check_cover(*held, max_problems);
}

}  // namespace shardmesh
