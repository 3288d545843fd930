// SPDX-License-Identifier: Apache-2.0
// distribution: a global shape and the fragments that hold it. Every feature either yields one or moves bytes from one
// to another.
export module shardmesh.layout:distribution;

import shardmesh.std;
import shardmesh.core;
import shardmesh.digest;
import :product;
import :tensor_layout;

export namespace shardmesh {

/// Who holds a fragment: a rank of one communicator, or an item (a file, or a part of one).
using owner_id = std::int32_t;
/// What the owners of a distribution are. Owners of different spaces with equal numbers have nothing in common.
enum class owner_space : std::uint8_t {
  ranks,  // of one communicator
  items   // files, or parts of them
};

/// A box of the global tensor and where it is. `local_offsets` are the box's offsets in the index space of the owner's
/// buffer `slot`. Fragments with equal boxes are replicas when their `term` is equal, terms of a Partial otherwise.
struct fragment {
  box where;
  owner_id owner = 0;
  std::int32_t slot = 0;
  extents local_offsets;
  std::int32_t term = 0;
  friend bool operator==(const fragment&, const fragment&) = default;
};

/// The digest of a list of numbers: XXH3 128 of their little-endian bytes.
digest128 digest_of(std::span<const std::int64_t> numbers);

/// Called with each fragment; returns false to stop.
using fragment_visitor = function_ref<bool(const fragment&)>;

/// An immutable value that is cheap to copy: it shares its description. The same on every rank: it has no pointers.
class distribution {
 public:
  /// What answers the questions below; grids answer by arithmetic, lists from flat arrays with a spatial index.
  struct model;

  /// The distribution of an empty tensor: shape [0], no owners.
  distribution();
  explicit distribution(std::shared_ptr<const model> description);

  /// Any set of fragments. Overlap and gaps are not errors here: ask `check_cover`. For many fragments
  /// `distribution_builder` takes less memory.
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
  /// What the sum of the terms is divided by when `reduction()` is avg; 0: by the number of terms of each box.
  std::int64_t divisor() const;
  /// Terms are 0 .. terms() - 1; 1 when there are none.
  std::int32_t terms() const;
  /// True when it covers the tensor exactly by construction (it comes from a layout), so nothing needs proof.
  bool is_complete() const;
  /// Equal for equal descriptions, whatever the order fragments were given in, and for a grid and the equal list.
  /// Cost: O(n log n) once, then O(1).
  digest128 digest() const;
  /// Equal for descriptions made alike: a cheap key for caches. Equal keys mean equal distributions, not the reverse.
  /// Cost: O(placements) for a layout's, as `digest` for lists.
  digest128 description_digest() const;
  /// Number of fragments. Cost: O(1); for strided layouts O(number of different coordinates) once.
  std::int64_t fragment_count() const;

  /// The fragments of one owner, in slot order. Cost: O(result), on lists + O(log n).
  void fragments_of(owner_id owner, fragment_visitor visit) const;
  /// Every owner that may hold a fragment, ascending. Cost: O(owners), on lists O(owners that hold one).
  void for_each_owner(function_ref<void(owner_id)> visit) const;
  /// The fragments whose boxes share a cell with `where`, in owner order. Never enumerates a grid.
  /// Cost: O(log n + result) on lists, O(result) on grids.
  void overlapping(const box& where, fragment_visitor visit) const;
  /// What the fragments share with `where`, as a product, if it is one: that of a layout without terms, whose ranks are
  /// numbered in the order of the mesh. Precondition: `where` is not empty.
  /// Cost: of a plain cut O(log owners), of others O(their runs).
  std::optional<fragment_product> product_within(const box& where) const;
  /// The same object, or equal digests (which may cost O(n log n)).
  friend bool operator==(const distribution& a, const distribution& b);
  /// True when both share one description: a cheap sufficient test of equality.
  bool is_same(const distribution& other) const { return model_ == other.model_; }

  /// A number that is equal for two objects that share one description: a key for caches.
  std::uintptr_t identity() const { return reinterpret_cast<std::uintptr_t>(model_.get()); }

  /// For this room.
  const model& description() const { return *model_; }

 private:
  std::shared_ptr<const model> model_;
};

/// What the layout's ranks hold. Answers by arithmetic: a layout of a million ranks costs no more than one of two.
/// Ranks are owners, every local tensor is slot 0; a rank that holds nothing has no fragments; a strided shard has one
/// per box; the coordinates of partial mesh dimensions are the terms, row-major.
result<distribution> distribute(const layout& l);

/// Makes a distribution of many fragments, flat from the start.
class distribution_builder {
 public:
  distribution_builder(const extents& shape, owner_space space, reduce_op reduction = reduce_op::none,
                       std::int64_t divisor = 0);
  distribution_builder(distribution_builder&&) noexcept;
  distribution_builder& operator=(distribution_builder&&) noexcept;
  ~distribution_builder();

  void reserve(std::size_t fragments);
  /// One fragment; spans have one entry per dimension (others are reported by `finish`). Empty `local_offsets` are
  /// zeros.
  void add(owner_id owner, std::int32_t slot, std::span<const std::int64_t> offsets,
           std::span<const std::int64_t> sizes, std::span<const std::int64_t> local_offsets = {},
           std::int32_t term = 0);
  void add(const fragment& f) { add(f.owner, f.slot, f.where.offsets, f.where.sizes, f.local_offsets, f.term); }
  /// Owners are 0 .. count - 1 even when the last ones hold nothing.
  void at_least_owners(owner_id count);
  /// Errors as of `distribution::from_fragments`. The builder is not used afterwards. Cost: O(n log n).
  result<distribution> finish();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// The distribution `inner` inside fragment number `index` of `outer` (in the order of `fragments_of` over all owners):
/// that fragment is replaced by inner's fragments, moved by its offsets. Inner owners are ranks of the same space.
/// \errors errc::out_of_bounds (no such fragment), errc::shape_mismatch (inner's shape is not the fragment's sizes),
///         errc::mixed_partial (both have terms)
/// Cost: O(n log n).
result<distribution> embed(const distribution& outer, std::int64_t index, const distribution& inner);

/// The same, with the fragment named by its owner, slot and box offsets.
result<distribution> embed(const distribution& outer, owner_id owner, std::int32_t slot, const extents& offsets,
                           const distribution& inner);

/// All fragments of all parts. \errors errc::shape_mismatch, errc::invalid_argument (owner spaces differ, no part),
/// errc::mixed_partial. Cost: O(n log n).
result<distribution> merge(std::span<const distribution> parts);

/// Owner i becomes `names[i]`; owners may meet. Precondition-free: errc::invalid_argument when an owner that holds a
/// fragment has no name or a negative one. Cost: O(n log n).
result<distribution> rename_owners(const distribution& d, std::span<const owner_id> names);

/// One holder for every distinct box (and term): the one with the least volume so far, ties to the lowest rank; boxes
/// are dealt with in ascending order of offsets, those with one holder first. Deterministic. Cost: O(n log n).
result<distribution> deduplicate(const distribution& d);

}  // namespace shardmesh
