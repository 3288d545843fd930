// SPDX-License-Identifier: Apache-2.0
// Metadata of shards of any type: the concepts over `shard_metadata_adapter` and `sharded_tensor_metadata_adapter`, and
// views of such metadata. The bodies of this room read metadata through the views, so that they are compiled once and
// copy nothing. Our own metadata is in metadata; shards with tensors are in shard_like.
module;
#include <shardmesh/shard_adapter.hpp>
export module shardmesh.sharding:metadata_like;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;

export namespace shardmesh {
using shardmesh::shard_adapter;
using shardmesh::shard_metadata_adapter;
using shardmesh::sharded_tensor_adapter;
using shardmesh::sharded_tensor_metadata_adapter;

/// Offsets or sizes as an adapter returns them, one number per dimension: 64-bit numbers that stay where they are (a
/// span, a reference to a vector), or `extents` by value.
template <class N>
concept shard_numbers = std::same_as<N, extents> || (std::convertible_to<N, std::span<const std::int64_t>> &&
                                                     (std::is_lvalue_reference_v<N> || std::ranges::borrowed_range<N>));

/// The metadata of one shard, of any framework. `shard_metadata_adapter<M>` gives its box of the whole tensor and its
/// placement. The numbers are untrusted: every function that takes them checks them.
template <class M>
concept shard_metadata_like = requires(const M& m) {
  { shard_metadata_adapter<M>::offsets(m) } -> shard_numbers;
  { shard_metadata_adapter<M>::sizes(m) } -> shard_numbers;
  { shard_metadata_adapter<M>::placement(m) } -> std::convertible_to<std::optional<remote_device>>;
};

/// An indexable list of such metadata, with elements that lie in memory.
template <class R>
concept shard_metadata_range = std::ranges::random_access_range<const R> && std::ranges::sized_range<const R> &&
                               std::is_lvalue_reference_v<std::ranges::range_reference_t<const R>> &&
                               shard_metadata_like<std::remove_cvref_t<std::ranges::range_reference_t<const R>>>;

}  // namespace shardmesh

namespace shardmesh::detail {

// A reference to numbers elsewhere, or `extents` of its own.
class seen_numbers {
 public:
  template <shard_numbers N>
  explicit seen_numbers(N&& numbers) {
    if constexpr (std::same_as<N, extents>)
      own_ = std::move(numbers);
    else
      seen_ = std::span<const std::int64_t>(numbers);
  }
  seen_numbers() = default;
  inline std::span<const std::int64_t> get() const { return own_ ? std::span<const std::int64_t>(*own_) : seen_; }

 private:
  std::span<const std::int64_t> seen_;
  std::optional<extents> own_;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// A view of one shard's metadata, of any type. The metadata must outlive the view, which owns only numbers and
/// placements that the adapter returns by value.
class shard_metadata_view {
 public:
  template <shard_metadata_like M>
  shard_metadata_view(const M& m)  // NOLINT: implicit, as a parameter type
      : offsets_(shard_metadata_adapter<M>::offsets(m)), sizes_(shard_metadata_adapter<M>::sizes(m)) {
    using placed = decltype(shard_metadata_adapter<M>::placement(m));
    if constexpr (std::same_as<placed, const std::optional<remote_device>&>)
      seen_ = &shard_metadata_adapter<M>::placement(m);
    else
      own_ = shard_metadata_adapter<M>::placement(m);
  }

  inline std::span<const std::int64_t> offsets() const { return offsets_.get(); }
  inline std::span<const std::int64_t> sizes() const { return sizes_.get(); }
  inline const std::optional<remote_device>& placement() const { return seen_ != nullptr ? *seen_ : own_; }
  /// The global rank of the placement, if it names one.
  inline std::optional<std::int32_t> rank() const { return placement() ? placement()->rank : std::nullopt; }
  /// Returns whether there are as many offsets as sizes, at most `max_rank`. The numbers of such a box may still be
  /// negative.
  bool has_box() const { return offsets().size() == sizes().size() && sizes().size() <= max_rank; }
  /// Returns whether the box has no negative numbers and every end fits in 64 bits; false without a box.
  bool is_well_formed() const { return has_box() && shardmesh::is_well_formed(where()); }
  /// Precondition: has_box().
  box where() const { return {extents(offsets()), extents(sizes())}; }
  /// Copies the metadata into our own type. Precondition: offsets and sizes have at most `max_rank` numbers each.
  shard_metadata copy() const { return {extents(offsets()), extents(sizes()), placement()}; }

 private:
  detail::seen_numbers offsets_, sizes_;
  const std::optional<remote_device>* seen_ = nullptr;
  std::optional<remote_device> own_;
};

/// Formats a shard: "[4:6, 0:8) on rank:1/cuda:0".
std::string to_string(const shard_metadata_view& shard);

/// A view of a list of metadata of any type. The list must outlive the view. Functions that inspect a tensor's shards
/// take such a view. Converts implicitly from any `shard_metadata_range`.
class shard_metadata_list {
 public:
  shard_metadata_list() = default;
  template <class R>
    requires(!std::same_as<R, shard_metadata_list> && shard_metadata_range<R>)
  shard_metadata_list(const R& shards)  // NOLINT: implicit, as a parameter type
      : size_(static_cast<std::size_t>(std::ranges::size(shards))) {
    using M = std::remove_cvref_t<std::ranges::range_reference_t<const R>>;
    if constexpr (std::ranges::contiguous_range<const R>) {
      shards_ = std::ranges::data(shards);
      at_ = [](const void* all, std::size_t i) { return shard_metadata_view(static_cast<const M*>(all)[i]); };
    } else {
      shards_ = std::addressof(shards);
      at_ = [](const void* all, std::size_t i) {
        const auto first = std::ranges::begin(*static_cast<const R*>(all));
        return shard_metadata_view(first[static_cast<std::ranges::range_difference_t<const R>>(i)]);
      };
    }
  }
  inline std::size_t size() const { return size_; }
  inline bool empty() const { return size_ == 0; }
  /// Precondition: i < size().
  inline shard_metadata_view operator[](std::size_t i) const { return at_(shards_, i); }

 private:
  const void* shards_ = nullptr;
  std::size_t size_ = 0;
  shard_metadata_view (*at_)(const void*, std::size_t) = nullptr;
};

/// The metadata of a whole sharded tensor, of any framework. `sharded_tensor_metadata_adapter<M>` gives the shards of
/// every rank, the tensor's sizes, and its properties.
template <class M>
concept sharded_tensor_metadata_like = requires(const M& m) {
  { sharded_tensor_metadata_adapter<M>::size(m) } -> shard_numbers;
  { sharded_tensor_metadata_adapter<M>::properties(m) } -> std::convertible_to<tensor_properties>;
  requires shard_metadata_range<std::remove_cvref_t<decltype(sharded_tensor_metadata_adapter<M>::shards(m))>>;
  requires std::is_lvalue_reference_v<decltype(sharded_tensor_metadata_adapter<M>::shards(m))> ||
               std::ranges::contiguous_range<decltype(sharded_tensor_metadata_adapter<M>::shards(m))>;
};

/// A view of a whole sharded tensor's metadata. The metadata must outlive the view.
class sharded_tensor_metadata_view {
 public:
  template <sharded_tensor_metadata_like M>
  sharded_tensor_metadata_view(const M& m)  // NOLINT: implicit, as a parameter type
      : shards_(sharded_tensor_metadata_adapter<M>::shards(m)),
        size_(sharded_tensor_metadata_adapter<M>::size(m)),
        properties_(sharded_tensor_metadata_adapter<M>::properties(m)) {}

  const shard_metadata_list& shards() const { return shards_; }
  /// One number per dimension of the tensor, unchecked.
  std::span<const std::int64_t> size() const { return size_.get(); }
  const tensor_properties& properties() const { return properties_; }
  /// Copies the metadata into our own type.
  /// \errors errc::rank_too_large for a tensor or a shard with too many dimensions
  result<sharded_tensor_metadata> copy() const;

 private:
  shard_metadata_list shards_;
  detail::seen_numbers size_;
  tensor_properties properties_;
};

}  // namespace shardmesh

namespace shardmesh::detail {

// One rank's metadata, or nothing: an optional or a pointer.
template <class E>
concept some_metadata = requires(const E& e) {
  { static_cast<bool>(e) };
  requires sharded_tensor_metadata_like<std::remove_cvref_t<decltype(*e)>>;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// The metadata of a sharded tensor, one element per rank: metadata of any type, optionals of it, or pointers to it.
template <class R>
concept gathered_metadata_range = std::ranges::contiguous_range<const R> && std::ranges::sized_range<const R> &&
                                  (sharded_tensor_metadata_like<std::ranges::range_value_t<const R>> ||
                                   detail::some_metadata<std::ranges::range_value_t<const R>>);

/// A view of such a list. The list must outlive the view. Converts implicitly from any `gathered_metadata_range`.
class gathered_metadata {
 public:
  gathered_metadata() = default;
  template <class R>
    requires(!std::same_as<R, gathered_metadata> && gathered_metadata_range<R>)
  gathered_metadata(const R& gathered)  // NOLINT: implicit, as a parameter type
      : metadata_(std::ranges::data(gathered)), size_(static_cast<std::size_t>(std::ranges::size(gathered))) {
    using E = std::ranges::range_value_t<const R>;
    at_ = [](const void* all, std::size_t i) -> std::optional<sharded_tensor_metadata_view> {
      const E& one = static_cast<const E*>(all)[i];
      if constexpr (sharded_tensor_metadata_like<E>)
        return sharded_tensor_metadata_view(one);
      else if (one)
        return sharded_tensor_metadata_view(*one);
      return std::nullopt;
    };
  }
  /// Number of ranks.
  inline std::size_t size() const { return size_; }
  /// The metadata of rank i; empty for a rank without shards. Precondition: i < size().
  std::optional<sharded_tensor_metadata_view> operator[](std::size_t i) const { return at_(metadata_, i); }

 private:
  const void* metadata_ = nullptr;
  std::size_t size_ = 0;
  std::optional<sharded_tensor_metadata_view> (*at_)(const void*, std::size_t) = nullptr;
};

/// Returns the distribution of the shards over the ranks of `group`. Owners are group ranks. A shard's slot is its
/// position among its owner's shards, in list order.
/// \errors errc::invalid_argument for a shard without a rank or with one outside the group, errc::out_of_bounds,
///         errc::shape_mismatch, errc::overflow, errc::rank_too_large, each naming the rank and the box
/// Cost: O(n log n). No communication.
result<distribution> distribution_of(const sharded_tensor_metadata_view& metadata, const rank_group& group);

}  // namespace shardmesh

/// The adapters of our own metadata.
template <>
struct shardmesh::shard_metadata_adapter<shardmesh::shard_metadata> {
  static const extents& offsets(const shard_metadata& m) { return m.offsets; }
  static const extents& sizes(const shard_metadata& m) { return m.sizes; }
  static const std::optional<remote_device>& placement(const shard_metadata& m) { return m.placement; }
};

template <>
struct shardmesh::sharded_tensor_metadata_adapter<shardmesh::sharded_tensor_metadata> {
  static const std::vector<shard_metadata>& shards(const sharded_tensor_metadata& m) { return m.shards; }
  static const extents& size(const sharded_tensor_metadata& m) { return m.size; }
  static const tensor_properties& properties(const sharded_tensor_metadata& m) { return m.properties; }
};

// Exported for room state, whose errors describe shards in the same way.
export namespace shardmesh::detail {

// Formats any number of integers: "[4, 2]".
std::string numbers_text(std::span<const std::int64_t> numbers);
// Formats a box: "[4:6, 0:8)", or "offsets [4, -1] and sizes [2, 8]" when it is not a valid box.
std::string box_text(const shard_metadata_view& shard);
// Adds a shard's rank and box to an error, if the shard has them.
error at_shard(error e, const shard_metadata_view& shard);
// Copies a shard into our own type. `index` is its position in its list. \errors errc::rank_too_large naming the rank
result<shard_metadata> copy_of(const shard_metadata_view& shard, std::size_t index);
// Converts numbers to the sizes of a tensor. \errors errc::rank_too_large
result<extents> as_extents(std::span<const std::int64_t> numbers);

}  // namespace shardmesh::detail
