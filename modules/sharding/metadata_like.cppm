// SPDX-License-Identifier: Apache-2.0
// Metadata of shards of any type: the concepts over `shard_metadata_adapter` and `sharded_tensor_metadata_adapter`, and
// the views through which the bodies of this room read them where they are, so that bodies are compiled once and
// nothing is copied. Not here: our own metadata (metadata), shards with tensors (shard_like).
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

/// What an adapter gives as offsets or sizes, one number per dimension: 64-bit numbers that lie somewhere (a span, a
/// reference to a vector), or `extents` by value.
template <class N>
concept shard_numbers = std::same_as<N, extents> || (std::convertible_to<N, std::span<const std::int64_t>> &&
                                                     (std::is_lvalue_reference_v<N> || std::ranges::borrowed_range<N>));

/// The metadata of one shard, of any framework: `shard_metadata_adapter<M>` gives its box of the whole tensor and where
/// it is. The numbers may be anything: whoever takes them checks them.
template <class M>
concept shard_metadata_like = requires(const M& m) {
  { shard_metadata_adapter<M>::offsets(m) } -> shard_numbers;
  { shard_metadata_adapter<M>::sizes(m) } -> shard_numbers;
  { shard_metadata_adapter<M>::placement(m) } -> std::convertible_to<std::optional<remote_device>>;
};

/// A list of such metadata that can be indexed and lies in memory.
template <class R>
concept shard_metadata_range = std::ranges::random_access_range<const R> && std::ranges::sized_range<const R> &&
                               std::is_lvalue_reference_v<std::ranges::range_reference_t<const R>> &&
                               shard_metadata_like<std::remove_cvref_t<std::ranges::range_reference_t<const R>>>;

}  // namespace shardmesh

namespace shardmesh::detail {

// Numbers where they are, or our own.
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

/// One shard's metadata of any type, seen: refers to it. Where its adapter gives numbers or placements by value, it
/// holds them.
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
  /// The global rank of the placement, or nothing.
  inline std::optional<std::int32_t> rank() const { return placement() ? placement()->rank : std::nullopt; }
  /// As many offsets as sizes, at most `max_rank`: it can be a box, though perhaps one with negative numbers.
  bool has_box() const { return offsets().size() == sizes().size() && sizes().size() <= max_rank; }
  /// It has a box, no number is negative and every end fits in 64 bits.
  bool is_well_formed() const { return has_box() && shardmesh::is_well_formed(where()); }
  /// Precondition: has_box().
  box where() const { return {extents(offsets()), extents(sizes())}; }
  /// A copy, as ours. Precondition: as many offsets and sizes as extents hold, each.
  shard_metadata copy() const { return {extents(offsets()), extents(sizes()), placement()}; }

 private:
  detail::seen_numbers offsets_, sizes_;
  const std::optional<remote_device>* seen_ = nullptr;
  std::optional<remote_device> own_;
};

/// "[4:6, 0:8) on rank:1/cuda:0".
std::string to_string(const shard_metadata_view& shard);

/// A list of metadata of any type, which it refers to: what functions take that look at the shards of a tensor. Made of
/// any `shard_metadata_range`, implicitly.
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

/// The metadata of a whole sharded tensor, of any framework: `sharded_tensor_metadata_adapter<M>` gives the shards of
/// every rank, the tensor's sizes and its properties.
template <class M>
concept sharded_tensor_metadata_like = requires(const M& m) {
  { sharded_tensor_metadata_adapter<M>::size(m) } -> shard_numbers;
  { sharded_tensor_metadata_adapter<M>::properties(m) } -> std::convertible_to<tensor_properties>;
  requires shard_metadata_range<std::remove_cvref_t<decltype(sharded_tensor_metadata_adapter<M>::shards(m))>>;
  requires std::is_lvalue_reference_v<decltype(sharded_tensor_metadata_adapter<M>::shards(m))> ||
               std::ranges::contiguous_range<decltype(sharded_tensor_metadata_adapter<M>::shards(m))>;
};

/// The same, seen: refers to it.
class sharded_tensor_metadata_view {
 public:
  template <sharded_tensor_metadata_like M>
  sharded_tensor_metadata_view(const M& m)  // NOLINT: implicit, as a parameter type
      : shards_(sharded_tensor_metadata_adapter<M>::shards(m)),
        size_(sharded_tensor_metadata_adapter<M>::size(m)),
        properties_(sharded_tensor_metadata_adapter<M>::properties(m)) {}

  const shard_metadata_list& shards() const { return shards_; }
  /// As many as the tensor has dimensions, and whatever the model says.
  std::span<const std::int64_t> size() const { return size_.get(); }
  const tensor_properties& properties() const { return properties_; }
  /// A copy, as ours. \errors errc::rank_too_large for a tensor or a shard of too many dimensions
  result<sharded_tensor_metadata> copy() const;

 private:
  shard_metadata_list shards_;
  detail::seen_numbers size_;
  tensor_properties properties_;
};

}  // namespace shardmesh

namespace shardmesh::detail {

// What one rank gave: metadata, or nothing: an optional or a pointer, or metadata itself.
template <class E>
concept some_metadata = requires(const E& e) {
  { static_cast<bool>(e) };
  requires sharded_tensor_metadata_like<std::remove_cvref_t<decltype(*e)>>;
};

}  // namespace shardmesh::detail

export namespace shardmesh {

/// Per rank its metadata of a sharded tensor: a list of metadata of any type, or of optionals or pointers of it.
template <class R>
concept gathered_metadata_range = std::ranges::contiguous_range<const R> && std::ranges::sized_range<const R> &&
                                  (sharded_tensor_metadata_like<std::ranges::range_value_t<const R>> ||
                                   detail::some_metadata<std::ranges::range_value_t<const R>>);

/// Such a list, which it refers to. Made of any, implicitly.
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
  /// Nothing for a rank without shards. Precondition: i < size().
  std::optional<sharded_tensor_metadata_view> operator[](std::size_t i) const { return at_(metadata_, i); }

 private:
  const void* metadata_ = nullptr;
  std::size_t size_ = 0;
  std::optional<sharded_tensor_metadata_view> (*at_)(const void*, std::size_t) = nullptr;
};

/// Which rank of `group` holds what: owners are group ranks, and the slot of a shard is its position among its owner's
/// shards in list order.
/// \errors errc::invalid_argument for a shard without a rank or with one that is not in the group, errc::out_of_bounds,
///         errc::shape_mismatch, errc::overflow, errc::rank_too_large, each naming the rank and the box
/// Cost: O(n log n). No communication.
result<distribution> distribution_of(const sharded_tensor_metadata_view& metadata, const rank_group& group);

}  // namespace shardmesh

/// Ours are models.
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

// Exported for room state, which says the same of shards.
export namespace shardmesh::detail {

// Numbers in words, however many: "[4, 2]".
std::string numbers_text(std::span<const std::int64_t> numbers);
// "[4:6, 0:8)", or "offsets [4, -1] and sizes [2, 8]" where they are no box.
std::string box_text(const shard_metadata_view& shard);
// The error with the shard's rank and box, as far as it has them.
error at_shard(error e, const shard_metadata_view& shard);
// As ours; `index` is its place in its list. \errors errc::rank_too_large naming the rank
result<shard_metadata> copy_of(const shard_metadata_view& shard, std::size_t index);
// As a tensor's sizes. \errors errc::rank_too_large
result<extents> as_extents(std::span<const std::int64_t> numbers);

}  // namespace shardmesh::detail
