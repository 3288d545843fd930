// SPDX-License-Identifier: Apache-2.0
// object_numbers: the numbers that keep the messages of subgroups and executors on one communicator apart, as one rank
// knows them. A tag has 10 bits for a subgroup's number and 10 for an executor's, so numbers are used again, but never
// while an object of any member has them. Not here: tags (subgroup.cpp, transfer's run.cpp).
export module shardmesh.comm:object_numbers;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Objects with tags of their own on a communicator.
enum class numbered_object : std::uint8_t { subgroup, executor };

/// A number that an object holds; another object may have it when the last copy of this is gone.
class held_number {
 public:
  /// 0, which no object has.
  held_number() = default;
  std::uint32_t value() const { return number_ ? *number_ : 0; }

 private:
  friend class object_numbers;
  explicit held_number(std::shared_ptr<const std::uint32_t> number) : number_(std::move(number)) {}
  std::shared_ptr<const std::uint32_t> number_;
};

/// The live numbers of one communicator on one rank: subgroups 1 .. 1023, executors 1 .. 1022. A handle; copies share
/// the numbers. A model of `communicator` that is copied keeps one and returns it from `object_numbers numbers()`.
/// Thread-safe.
///
/// Members of a new object exchange their offers, then each chooses and holds the number. Offers of all members are
/// needed, because each knows only of objects that it is a member of.
class object_numbers {
 public:
  /// None are live.
  object_numbers();

  /// The numbers that are live here, for the other members. Cost: at most 132 bytes.
  std::vector<std::byte> offer(numbered_object kind) const;
  /// A number that is live on no member: the same on each, when the offers are. Successive numbers differ as long as
  /// possible, so that a message that nobody received is not taken for one of the next object.
  /// \errors errc::unsupported: every number is live on some member; errc::disagreement naming the member whose offer
  ///         cannot be read
  result<std::uint32_t> choose(numbered_object kind, std::span<const std::span<const std::byte>> offers);
  /// Marks the number as live until the last copy of what is returned is gone.
  held_number hold(numbered_object kind, std::uint32_t number);

 private:
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace shardmesh

namespace shardmesh::detail {

// The numbers of communicators that keep none of their own. They share one set, which refuses more numbers than each of
// them would need to, but gives none twice.
object_numbers process_numbers();

}  // namespace shardmesh::detail
