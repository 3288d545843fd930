// SPDX-License-Identifier: Apache-2.0
// Shards and sharded tensors of any type: the concepts over `shard_adapter` and `sharded_tensor_adapter`. Our own types
// are in shard; the metadata of shards is in metadata_like.
module;
#include <shardmesh/shard_adapter.hpp>
export module shardmesh.sharding:shard_like;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;
import :shard;

export namespace shardmesh {

/// A shard that this rank holds, of any framework. `shard_adapter<S>` gives its metadata and a view of its tensor. The
/// metadata is a reference to a `shard_metadata_like` object, perhaps to the shard itself. The view has the metadata's
/// sizes. If shards can hold sharded tensors instead, the adapter also has `nested`.
template <class S>
concept shard_like = requires(S& s, const std::remove_const_t<S>& c) {
  { shard_adapter<std::remove_const_t<S>>::view(s) } -> std::same_as<tensor_view>;
  requires std::is_lvalue_reference_v<decltype(shard_adapter<std::remove_const_t<S>>::metadata(c))>;
  requires shard_metadata_like<std::remove_cvref_t<decltype(shard_adapter<std::remove_const_t<S>>::metadata(c))>>;
};

/// An indexable list of shards.
template <class R>
concept shard_range = std::ranges::random_access_range<const R> && std::ranges::sized_range<const R> &&
                      std::is_lvalue_reference_v<std::ranges::range_reference_t<const R>> &&
                      shard_like<std::remove_cvref_t<std::ranges::range_reference_t<const R>>>;

/// A sharded tensor, of any framework. `sharded_tensor_adapter<S>` gives this rank's shards, the metadata of all
/// shards, the group's global ranks, and this process's rank in the group.
template <class S>
concept sharded_tensor_like = requires(const S& s) {
  requires std::is_lvalue_reference_v<decltype(sharded_tensor_adapter<S>::metadata(s))>;
  requires sharded_tensor_metadata_like<std::remove_cvref_t<decltype(sharded_tensor_adapter<S>::metadata(s))>>;
  requires shard_range<std::remove_cvref_t<decltype(sharded_tensor_adapter<S>::local_shards(s))>>;
  { sharded_tensor_adapter<S>::global_ranks(s) } -> std::convertible_to<std::vector<std::int32_t>>;
  { sharded_tensor_adapter<S>::rank(s) } -> std::convertible_to<std::int32_t>;
};

}  // namespace shardmesh

// Exported for room state, which flattens nested shards.
export namespace shardmesh::detail {

// A read-only view of a shard's tensor. Precondition: the shard is not nested.
template <shard_like S>
const_tensor_view view_of_shard(const S& shard) {
  if constexpr (requires {
                  { shard_adapter<S>::view(shard) } -> std::convertible_to<const_tensor_view>;
                })
    return shard_adapter<S>::view(shard);
  else  // as in view_of: an adapter may have `view(S&)` alone
    return shard_adapter<S>::view(const_cast<S&>(shard));
}

// Makes the error for a shard that is nested more than `max_shard_nesting` deep.
error nested_too_deeply(const shard_metadata_view& shard);

// The sharded tensor inside a shard, or null.
template <shard_like S>
auto nested_in(const S& shard) {
  if constexpr (requires { shard_adapter<S>::nested(shard); })
    return shard_adapter<S>::nested(shard);
  else
    return static_cast<const void*>(nullptr);
}

template <class S>
inline constexpr bool can_be_nested = requires(const S& s) { shard_adapter<S>::nested(s); };

// A shard's own properties: the adapter's if it has them, else the dtype and defaults.
template <class S>
inline constexpr bool has_shard_properties = requires(const S& s) {
  { shard_adapter<S>::properties(s) } -> std::convertible_to<tensor_properties>;
};
template <shard_like S>
tensor_properties properties_of_shard(const S& shard) {
  if constexpr (has_shard_properties<S>)
    return shard_adapter<S>::properties(shard);
  else
    return {.type = view_of_shard(shard).type};
}

}  // namespace shardmesh::detail

/// The adapters of our own shards and sharded tensors.
template <shardmesh::local_tensor T>
struct shardmesh::shard_adapter<shardmesh::shard<T>> {
  static const shard_metadata& metadata(const shard<T>& s) { return s.metadata(); }
  static tensor_view view(shard<T>& s) { return view_of(s.tensor()); }
  static const_tensor_view view(const shard<T>& s) { return view_of(s.tensor()); }
  static tensor_properties properties(const shard<T>& s)
    requires requires(const T& t) {
      { adapter<T>::properties(t) } -> std::same_as<tensor_properties>;
    }
  {
    return adapter<T>::properties(s.tensor());
  }
  static const sharded_tensor<T>* nested(const shard<T>& s) { return s.is_nested() ? &s.nested() : nullptr; }
};

template <shardmesh::local_tensor T>
struct shardmesh::sharded_tensor_adapter<shardmesh::sharded_tensor<T>> {
  static const sharded_tensor_metadata& metadata(const sharded_tensor<T>& s) { return s.metadata(); }
  static std::span<const shard<T>> local_shards(const sharded_tensor<T>& s) { return s.local_shards(); }
  static const rank_group& group(const sharded_tensor<T>& s) { return s.group(); }
  static std::vector<std::int32_t> global_ranks(const sharded_tensor<T>& s) { return s.group().globals(); }
  static std::int32_t rank(const sharded_tensor<T>& s) { return s.rank(); }
};
