// SPDX-License-Identifier: Apache-2.0
// digest: a 128-bit digest of those properties of a state dict that ranks must agree on. Ranks hold different values;
// comparing values is in difference.
export module shardmesh.state:digest;

import shardmesh.std;
import shardmesh.sharding;
import shardmesh.tree;
import :dict;
import :value;

namespace shardmesh::detail {

digest128 digest_of_kind(value_kind kind);
digest128 digest_of_tensor(dtype type, const extents& sizes);
digest128 digest_of_metadata(const sharded_tensor_metadata& metadata);
result<digest128> digest_of_dtensor(const layout& l, dtype type);
digest128 digest_of_tree(const tree_spec& spec, const std::vector<digest128>& leaves);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Digests typed paths, kinds, dtypes, shapes, and layouts: for a sharded tensor the boxes and ranks of all shards, for
/// a dtensor its layout. Values, devices, the order of a mapping's keys, and the order of shards in metadata do not
/// count. The digest is the same on every machine, and on every rank whose state dict describes the same tensors. A
/// rank outside a dtensor's mesh does not know its dtype and gets another digest.
/// \errors those of `distribution_of` for a dtensor
/// Cost: O(nodes + shards log shards).
template <local_tensor T>
result<digest128> digest(const state_dict<T>& dict) {
  std::vector<digest128> leaves;
  leaves.reserve(dict.size());
  for (const state_value<T>& value : dict.leaves()) {
    if (const T* tensor = value.tensor()) {
      const const_tensor_view view = view_of(*tensor);
      leaves.push_back(detail::digest_of_tensor(view.type, view.sizes));
    } else if (const auto* sharded = value.sharded_tensor()) {
      leaves.push_back(detail::digest_of_metadata(sharded->metadata()));
    } else if (const auto* d = value.dtensor()) {
      const dtype type = d->has_local() ? view_of(d->local()).type : dtype::undefined;
      auto one = detail::digest_of_dtensor(d->layout(), type);
      if (!one) return std::move(one).error();
      leaves.push_back(*one);
    } else {
      leaves.push_back(detail::digest_of_kind(value.kind()));
    }
  }
  return detail::digest_of_tree(dict.spec(), leaves);
}

}  // namespace shardmesh
