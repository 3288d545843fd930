// SPDX-License-Identifier: Apache-2.0
// distribution: a global shape and the fragments that hold it. Every feature either yields one or moves bytes from one
// to another.
module;
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
export module shardmesh.layout:distribution;

import shardmesh.core;

export namespace shardmesh {

/// Who holds a fragment: a rank of one communicator, or an item (a file, or a part of one).
using owner_id = std::int32_t;
enum class owner_space : std::uint8_t { ranks, items };

/// How terms of a Partial are combined; `none` when the distribution has no terms.
enum class reduce_op : std::uint8_t { none, sum, avg, product, min, max, band, bor, bxor };

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

/// 128 bits that are equal exactly when two descriptions are (up to hash collisions); the same on every machine.
struct digest128 {
  std::uint64_t low = 0, high = 0;
  friend auto operator<=>(const digest128&, const digest128&) = default;
};

/// Called with each fragment; returns false to stop.
using fragment_visitor = function_ref<bool(const fragment&)>;

/// An immutable value that is cheap to copy: it shares its description. The same on every rank: it has no pointers.
class distribution {
 public:
  /// What answers the questions below; grids answer by arithmetic, lists from flat arrays with a spatial index.
  struct model;

  /// The empty distribution of a scalar-less tensor: shape [0], no owners.
  distribution();
  explicit distribution(std::shared_ptr<const model> description);

  /// Any set of fragments. errc::out_of_bounds, errc::shape_mismatch (ranks differ), errc::overflow, each naming the
  /// owner and the box. Overlap and gaps are not errors here: ask `check_cover`. Cost: O(n log n).
  static result<distribution> from_fragments(const extents& shape, std::span<const fragment> fragments,
                                             owner_space space, reduce_op reduction = reduce_op::none);

  const extents& global_shape() const;
  owner_space space() const;
  /// Owners are 0 .. owners() - 1; some may hold nothing.
  owner_id owners() const;
  reduce_op reduction() const;
  /// Equal for equal descriptions, whatever the order fragments were given in.
  digest128 digest() const;
  /// Number of fragments, O(1) or by arithmetic.
  std::int64_t fragment_count() const;

  /// The fragments of one owner, in slot order. Cost: O(result).
  void fragments_of(owner_id owner, fragment_visitor visit) const;
  /// The fragments whose boxes share a cell with `where`, in owner order. Never enumerates a grid.
  /// Cost: O(log n + result) on lists, O(result) on grids.
  void overlapping(const box& where, fragment_visitor visit) const;

 private:
  std::shared_ptr<const model> model_;
};

}  // namespace shardmesh
