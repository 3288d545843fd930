// SPDX-License-Identifier: Apache-2.0
// distribution: a global shape and the fragments that hold it. Every feature either yields a distribution or moves
// bytes from one to another.
export module shardmesh.layout:distribution;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :product;
import :tensor_layout;

export namespace shardmesh {

/// The owner of a fragment: a rank of one communicator, or an item (a file or part of one).
using owner_id = std::int32_t;
/// The kind of a distribution's owners. Owners of different spaces are unrelated, even when their numbers are equal.
enum class owner_space : std::uint8_t {
  ranks,  // of one communicator
  items   // files, or parts of them
};

/// A box of the global tensor and its place. `local_offsets` are the box's offsets in the index space of the owner's
/// buffer `slot`. Fragments with equal boxes are replicas when their `term` is equal, and terms of a Partial otherwise.
struct fragment {
  box where;
  owner_id owner = 0;
  std::int32_t slot = 0;
  extents local_offsets;
  std::int32_t term = 0;
  friend bool operator==(const fragment&, const fragment&) = default;
};

/// Returns the digest of a list of numbers: XXH3 128 of their little-endian bytes.
digest128 digest_of(std::span<const std::int64_t> numbers);

/// A visitor that receives each fragment and returns false to stop.
using fragment_visitor = function_ref<bool(const fragment&)>;

/// A global shape and the fragments that hold it. An immutable value that is cheap to copy, since copies share one
/// description. It contains no memory addresses, so it is the same on every rank.
class distribution {
 public:
  /// The implementation behind the members below. Grids compute their answers; lists read flat arrays with a spatial
  /// index.
  struct model;

  /// The distribution of an empty tensor: shape [0], no owners.
  distribution();
  explicit distribution(std::shared_ptr<const model> description);

  /// Makes a distribution of any fragments. Overlaps and gaps are not errors here: `check_cover` finds them. For many
  /// fragments, `distribution_builder` takes less memory.
  /// \errors errc::out_of_bounds, errc::shape_mismatch (ranks differ), errc::invalid_argument (a negative owner), each
  ///         naming the owner and the box; errc::overflow
  /// Cost: O(n log n).
  static result<distribution> from_fragments(const extents& shape, std::span<const fragment> fragments,
                                             owner_space space, reduce_op reduction = reduce_op::none);

  const extents& global_shape() const;
  owner_space space() const;
  /// Owners are 0 .. owners() - 1; some may hold nothing.
  owner_id owners() const;
  reduce_op reduction() const;
  /// The divisor of the sum of the terms when `reduction()` is avg. 0 means that each box divides by its number of
  /// terms.
  std::int64_t divisor() const;
  /// Terms are 0 .. terms() - 1; 1 when there are none.
  std::int32_t terms() const;
  /// True when the distribution comes from a layout: it then covers the tensor exactly, so no proof is needed.
  bool is_complete() const;
  /// Equal for equal descriptions, independent of the order in which fragments were given. A grid and the equal list
  /// have the same digest. Cost: O(n log n) once, then O(1).
  digest128 digest() const;
  /// Equal for descriptions that were made in the same way: a cheap key for caches. Equal keys imply equal
  /// distributions, but not the reverse. Cost: O(placements) for layouts; as `digest` for lists.
  digest128 description_digest() const;
  /// Number of fragments. Cost: O(1); for strided layouts, O(number of different coordinates) once.
  std::int64_t fragment_count() const;

  /// Visits the fragments of one owner, in slot order. Cost: O(result); for lists, plus O(log n).
  void fragments_of(owner_id owner, fragment_visitor visit) const;
  /// Visits every owner that may hold a fragment, ascending. Cost: O(owners); for lists,
  /// O(owners that hold a fragment).
  void for_each_owner(function_ref<void(owner_id)> visit) const;
  /// Visits the fragments whose boxes share a cell with `where`, in owner order. Never enumerates a grid.
  /// Cost: O(log n + result) for lists, O(result) for grids.
  void overlapping(const box& where, fragment_visitor visit) const;
  /// Returns the fragments' intersections with `where` as a product. Only layouts without terms whose ranks are
  /// numbered in mesh order have one. Precondition: `where` is not empty.
  /// Cost: O(log owners) for a plain cut, O(runs) for others.
  std::optional<fragment_product> product_within(const box& where) const;
  /// True for the same description or for equal digests (which may cost O(n log n)).
  friend bool operator==(const distribution& a, const distribution& b);
  /// True when both share one description: a cheap sufficient test of equality.
  bool is_same(const distribution& other) const { return model_ == other.model_; }

  /// A number that is equal for objects that share one description: a key for caches.
  std::uintptr_t identity() const { return reinterpret_cast<std::uintptr_t>(model_.get()); }

  /// The model, for this room only.
  const model& description() const { return *model_; }

 private:
  std::shared_ptr<const model> model_;
};

/// Returns the distribution of a layout's ranks. It is computed on demand: a layout of a million ranks costs no more
/// than one of two. Ranks are the owners, and every local tensor is slot 0. A rank that holds nothing has no fragments;
/// a strided shard has one fragment per box. The coordinates of partial mesh dimensions number the terms, row-major.
result<distribution> distribute(const layout& l);

/// Builds a distribution of many fragments directly in flat arrays.
class distribution_builder {
 public:
  distribution_builder(const extents& shape, owner_space space, reduce_op reduction = reduce_op::none,
                       std::int64_t divisor = 0);
  distribution_builder(distribution_builder&&) noexcept;
  distribution_builder& operator=(distribution_builder&&) noexcept;
  ~distribution_builder();

  void reserve(std::size_t fragments);
  /// Adds a fragment. The spans have one entry per dimension; `finish` reports any other length. Empty `local_offsets`
  /// mean zeros.
  void add(owner_id owner, std::int32_t slot, std::span<const std::int64_t> offsets,
           std::span<const std::int64_t> sizes, std::span<const std::int64_t> local_offsets = {},
           std::int32_t term = 0);
  void add(const fragment& f) { add(f.owner, f.slot, f.where.offsets, f.where.sizes, f.local_offsets, f.term); }
  /// Sets the owners to at least 0 .. count - 1, even when the last ones hold nothing.
  void at_least_owners(owner_id count);
  /// Returns the distribution; errors as for `distribution::from_fragments`. The builder must not be used afterwards.
  /// Cost: O(n log n).
  result<distribution> finish();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Replaces fragment number `index` of `outer` (in the order of `fragments_of` over all owners) by the fragments of
/// `inner`, moved by that fragment's offsets. Equal owner numbers in `inner` and `outer` mean the same owner.
/// \errors errc::out_of_bounds (no such fragment), errc::shape_mismatch (inner's shape differs from the fragment's
///         sizes), errc::mixed_partial (both have terms)
/// Cost: O(n log n).
result<distribution> embed(const distribution& outer, std::int64_t index, const distribution& inner);

/// The same, with the fragment identified by its owner, slot, and box offsets.
result<distribution> embed(const distribution& outer, owner_id owner, std::int32_t slot, const extents& offsets,
                           const distribution& inner);

/// Combines all fragments of all parts. \errors errc::shape_mismatch, errc::invalid_argument (different owner spaces,
/// or no part), errc::mixed_partial. Cost: O(n log n).
result<distribution> merge(std::span<const distribution> parts);

/// Replaces owner i by `names[i]`; several owners may get the same number. \errors errc::invalid_argument when an owner
/// of a fragment has no name or a negative one. Cost: O(n log n).
result<distribution> rename_owners(const distribution& d, std::span<const owner_id> names);

/// Keeps one holder for every distinct box (and term): the holder with the least volume so far, or the lowest rank
/// among equals. Boxes with a single holder come first; the others follow in ascending order of offsets. Deterministic.
/// Cost: O(n log n).
result<distribution> deduplicate(const distribution& d);

}  // namespace shardmesh
