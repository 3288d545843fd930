// SPDX-License-Identifier: Apache-2.0
// object_numbers: one rank's record of the numbers that distinguish the messages of a communicator's subgroups and
// executors. A tag has only 10 bits for a subgroup's number and 10 for an executor's, so numbers are reused. No number
// is reused while an object of any member holds it. subgroup.cpp and run.cpp (room transfer) compose the tags.
export module shardmesh.comm:object_numbers;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The kinds of objects that have tags of their own on a communicator.
enum class numbered_object : std::uint8_t { subgroup, executor };

/// A number that an object holds. Another object may take it once the last copy of this handle is destroyed.
class held_number {
 public:
  /// Holds 0, the number of no object.
  held_number() = default;
  std::uint32_t value() const { return number_ ? *number_ : 0; }

 private:
  friend class object_numbers;
  explicit held_number(std::shared_ptr<const std::uint32_t> number) : number_(std::move(number)) {}
  std::shared_ptr<const std::uint32_t> number_;
};

/// The live numbers of one communicator on one rank: subgroups 1 .. 1023, executors 1 .. 1022. A handle; copies share
/// the numbers. A copyable model of `communicator` keeps one and returns it from `object_numbers numbers()`.
/// Thread-safe.
///
/// The members of a new object exchange their offers; then each chooses and holds the number. Every member's offer is
/// needed, because a member knows only the objects that it belongs to.
class object_numbers {
 public:
  /// Makes a set without live numbers.
  object_numbers();

  /// Serialises the numbers that are live on this rank, for the other members. Cost: at most 136 bytes.
  std::vector<std::byte> offer(numbered_object kind) const;
  /// Makes one offer of two, for `choose`. Returns nothing if one of them cannot be read.
  static std::optional<std::vector<std::byte>> merge(std::span<const std::byte> a, std::span<const std::byte> b);
  /// Chooses a number that is live on no member; equal offers give equal numbers. A number is reused as late as
  /// possible, so that the next object does not receive a message that a dead object left behind.
  /// \errors errc::unsupported: every number is live on some member; errc::disagreement: a member's offer cannot be
  ///         read (names the member)
  result<std::uint32_t> choose(numbered_object kind, std::span<const std::span<const std::byte>> offers);
  /// Marks the number as live until the last copy of the returned handle is destroyed.
  held_number hold(numbered_object kind, std::uint32_t number);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh

namespace shardmesh::detail {

// Returns the numbers of communicators that keep none of their own. They share one set: no number is live twice, but
// the set runs out sooner than one set per communicator would.
object_numbers process_numbers();

}  // namespace shardmesh::detail
