// SPDX-License-Identifier: Apache-2.0
// shard<T> and sharded_tensor<T>: this rank's tensors, and the metadata of all ranks' shards. T is any local tensor; a
// shard can itself be a sharded tensor. Exchanging metadata with other ranks is in init; checks of metadata are in
// validation.
module;
#include <shardmesh/assert.hpp>
#include <shardmesh/refuse.hpp>
export module shardmesh.sharding:shard;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;
import :metadata_like;

// Exported for room state, which gives shards new metadata.
export namespace shardmesh::detail {

result<void> check_shard_tensor(const extents& tensor_sizes, const shard_metadata& metadata);

}  // namespace shardmesh::detail

namespace shardmesh::detail {

// An owned `sharded_tensor<T>`, copyable when T is. A nested shard holds one.
template <class Value, class T>
class boxed {
 public:
  explicit boxed(Value value) : held_(std::make_unique<Value>(std::move(value))) {}
  boxed(boxed&&) noexcept = default;
  boxed& operator=(boxed&&) noexcept = default;
  boxed(const boxed& other)
    requires std::copy_constructible<T>
      : held_(std::make_unique<Value>(*other.held_)) {}
  boxed& operator=(const boxed& other)
    requires std::copy_constructible<T>
  {
    held_ = std::make_unique<Value>(*other.held_);
    return *this;
  }
  ~boxed() = default;
  Value& operator*() { return *held_; }
  const Value& operator*() const { return *held_; }

 private:
  std::unique_ptr<Value> held_;
};

// The parts of the checks that do not depend on T.
result<void> check_shard_nested(const extents& nested_size, std::int32_t nested_depth, const shard_metadata& metadata);

// Returns, for each local shard, its position among the rank's shards in the metadata.
result<std::vector<std::size_t>> order_of_local_shards(std::span<const shard_metadata> local,
                                                       const sharded_tensor_metadata& metadata, const rank_group& group,
                                                       std::int32_t rank);

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The maximum nesting depth of sharded tensors.
inline constexpr std::int32_t max_shard_nesting = 64;

/// Returns the properties of one local tensor: `adapter<T>::properties` if the adapter has it, else its dtype and
/// defaults.
template <local_tensor T>
tensor_properties properties_of(const T& tensor) {
  if constexpr (requires {
                  { adapter<T>::properties(tensor) } -> std::same_as<tensor_properties>;
                })
    return adapter<T>::properties(tensor);
  else
    return {.type = view_of(tensor).type};
}

template <local_tensor T>
class sharded_tensor;

/// A shard that this rank holds: a T, or an owned sharded tensor that is as large as the shard's box. Copyable when T
/// is.
template <local_tensor T>
class shard {
 public:
  /// Makes a shard from a tensor.
  /// \errors errc::shape_mismatch when the tensor's sizes are not the shard's, naming the box and the rank; those of
  ///         the adapter's `check`
  static result<shard> make(T tensor, shard_metadata metadata) {
    if (auto plain = check_tensor(tensor); !plain) {
      error problem = std::move(plain).error().with_box(metadata.where());
      return metadata.rank() ? std::move(problem).with_rank(*metadata.rank()) : problem;
    }
    if (auto valid = detail::check_shard_tensor(adapter<T>::view(tensor).sizes, metadata); !valid)
      return std::move(valid).error();
    return shard(std::variant<T, nested_tensor>(std::in_place_index<0>, std::move(tensor)), std::move(metadata));
  }
  /// Makes a shard from a sharded tensor.
  /// \errors as above; errc::invalid_argument when it is nested more than `max_shard_nesting` deep
  static result<shard> make(sharded_tensor<T> nested, shard_metadata metadata) {
    if (auto valid = detail::check_shard_nested(nested.metadata().size, nested.nesting(), metadata); !valid)
      return std::move(valid).error();
    return shard(std::variant<T, nested_tensor>(std::in_place_index<1>, nested_tensor(std::move(nested))),
                 std::move(metadata));
  }

  /// Moves the tensor into a shard with other metadata.
  /// \errors errc::shape_mismatch when the sizes differ
  result<shard> with_metadata(shard_metadata metadata) && {
    if (auto valid = detail::check_shard_tensor(metadata_.sizes, metadata); !valid) return std::move(valid).error();
    return shard(std::move(held_), std::move(metadata));
  }

  const shard_metadata& metadata() const { return metadata_; }
  bool is_nested() const { return held_.index() == 1; }
  /// Precondition: !is_nested().
  T& tensor() { return SHARDMESH_ASSERT(!is_nested()), *std::get_if<0>(&held_); }
  const T& tensor() const { return SHARDMESH_ASSERT(!is_nested()), *std::get_if<0>(&held_); }
  /// Precondition: is_nested().
  sharded_tensor<T>& nested() { return SHARDMESH_ASSERT(is_nested()), **std::get_if<1>(&held_); }
  const sharded_tensor<T>& nested() const { return SHARDMESH_ASSERT(is_nested()), **std::get_if<1>(&held_); }

 private:
  using nested_tensor = detail::boxed<sharded_tensor<T>, T>;
  shard(std::variant<T, nested_tensor> held, shard_metadata metadata)
      : held_(std::move(held)), metadata_(std::move(metadata)) {}

  std::variant<T, nested_tensor> held_;
  shard_metadata metadata_;
};

/// A tensor whose shards the ranks of a group hold: this rank's shards, and the metadata of all.
/// Source: torch.distributed._shard.sharded_tensor.ShardedTensor
template <local_tensor T>
class sharded_tensor {
 public:
  using tensor_type = T;

  /// Makes a sharded tensor from metadata that is known already. No communication, so other ranks' shards are not
  /// checked. Local shards are put into the order of the metadata, so that shard i is slot i of `distribution_of`.
  /// \param rank  this process in the group (group rank)
  /// \errors errc::invalid_argument when the rank is not in the group, when a local shard is not one of the metadata's
  ///         shards on this rank, or when the metadata gives this rank a shard that is missing; each names the rank and
  ///         the box
  /// Cost: O(shards log shards).
  /// Source: ShardedTensor._init_from_local_shards_and_global_metadata, which also runs the checks of `validation`
  static result<sharded_tensor> make(std::vector<shard<T>> local_shards, sharded_tensor_metadata metadata,
                                     rank_group group, std::int32_t rank) {
    std::vector<shard_metadata> held;
    for (const shard<T>& one : local_shards) held.push_back(one.metadata());
    auto order = detail::order_of_local_shards(held, metadata, group, rank);
    if (!order) return std::move(order).error();
    sharded_tensor made;
    std::vector<std::optional<shard<T>>> sorted(local_shards.size());
    for (std::size_t i = 0; i < local_shards.size(); ++i) sorted[(*order)[i]] = std::move(local_shards[i]);
    for (auto& one : sorted) {
      if (one->is_nested()) made.nesting_ = std::max(made.nesting_, one->nested().nesting() + 1);
      made.local_shards_.push_back(*std::move(one));
    }
    made.metadata_ = std::move(metadata);
    made.group_ = std::move(group);
    made.rank_ = rank;
    return made;
  }

  sharded_tensor(sharded_tensor&&) noexcept = default;
  sharded_tensor& operator=(sharded_tensor&&) noexcept = default;
  sharded_tensor(const sharded_tensor&)
    requires std::copy_constructible<T>
  = default;
  sharded_tensor& operator=(const sharded_tensor&)
    requires std::copy_constructible<T>
  = default;
  sharded_tensor(const sharded_tensor&)
    requires(!std::copy_constructible<T>)
  = SHARDMESH_REFUSE("a sharded tensor copies only when its tensor type does, and this one does not: std::move it");
  sharded_tensor& operator=(const sharded_tensor&)
    requires(!std::copy_constructible<T>)
  = SHARDMESH_REFUSE("a sharded tensor copies only when its tensor type does, and this one does not: std::move it");
  ~sharded_tensor() = default;

  std::span<shard<T>> local_shards() { return local_shards_; }
  std::span<const shard<T>> local_shards() const { return local_shards_; }
  std::vector<shard<T>> take_local_shards() && { return std::move(local_shards_); }
  /// The metadata of the shards of all ranks.
  const sharded_tensor_metadata& metadata() const { return metadata_; }
  const extents& size() const { return metadata_.size; }
  const rank_group& group() const { return group_; }
  /// This process's rank in the group.
  std::int32_t rank() const { return rank_; }
  /// 0 when no local shard is a sharded tensor, else one more than the nesting of the most deeply nested shard.
  std::int32_t nesting() const { return nesting_; }

 private:
  sharded_tensor() = default;
  std::vector<shard<T>> local_shards_;
  sharded_tensor_metadata metadata_;
  rank_group group_;
  std::int32_t rank_ = 0;
  std::int32_t nesting_ = 0;
};

/// Returns the distribution of the shards over the ranks of the group. A nested shard counts as one box of its holder
/// (see `flatten_nested_shards` in room state).
/// \errors as for metadata
template <local_tensor T>
result<distribution> distribution_of(const sharded_tensor<T>& tensor) {
  return distribution_of(tensor.metadata(), tensor.group());
}

}  // namespace shardmesh
