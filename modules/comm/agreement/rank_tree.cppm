// SPDX-License-Identifier: Apache-2.0
// rank_tree: a tree over all ranks, and the messages along it. Agreements of many ranks use it, so that no rank
// exchanges messages with all others. For this room and the rooms above it, not for users. A message that inner ranks
// cannot combine goes directly to rank 0 (sized_messages), because their bytes would grow with the ranks.
export module shardmesh.comm:rank_tree;

import shardmesh.std;
import shardmesh.core;
import :communicator_ref;

export namespace shardmesh::detail {

// The place of one rank in the tree, whose root is rank 0. Children have consecutive numbers, so they are often on one
// machine.
struct rank_tree {
  // The most children of a rank. More of them make the tree flatter, but they send to their parent one by one.
  static constexpr std::int32_t fan_out = 4;

  std::int32_t rank = 0, size = 1;

  bool is_root() const { return rank == 0; }
  std::int32_t parent() const;  // precondition: this is not the root
  std::vector<std::int32_t> children() const;
  std::int32_t depth() const;   // levels between the root and this rank; 0 for the root
  std::int32_t height() const;  // levels below this rank; 0 for a rank without children

  // How many steps of time a rank waits beyond the deadline, for its children and for its parent. If one rank does not
  // arrive, the wait of a neighbour ends before all other waits, so that the error names the missing rank.
  std::int32_t patience_with_children() const;  // precondition: this rank has children
  std::int32_t patience_with_parent() const;
};

// The tag of messages along the tree: the last but one of users, because a program may have messages in flight under
// other tags.
inline constexpr std::uint32_t tree_tag = (1U << 12) - 2;

// One rank's messages along the tree. All ranks make the same calls in the same order. Each call blocks, and returns
// the communicator's errors.
class tree_messages {
 public:
  // `comm` must have host messages (see `has_host_messages`).
  tree_messages(communicator_ref comm, const call_options& call);

  const rank_tree& place() const { return place_; }
  void abort(const error& reason) const { comm_.abort(reason); }
  const std::vector<std::int32_t>& children() const { return children_; }

  // The first round of a call, in which a rank may not arrive: the messages of the children, which all have this size,
  // in their order; then a message to the parent and the parent's answer; then the same bytes to all children.
  result<std::vector<std::vector<std::byte>>> receive_from_children(std::size_t size_bytes) const;
  result<std::vector<std::byte>> ask_parent(std::span<const std::byte> message, std::size_t answer_bytes) const;
  result<void> send_to_children(std::span<const std::byte> bytes) const;

  // Later rounds, with messages of any size.
  result<std::vector<std::vector<std::byte>>> receive_any_from_children() const;
  result<void> send_any_to_parent(std::span<const std::byte> bytes) const;  // nothing on rank 0
  // Returns rank 0's bytes on every rank. Those of other ranks are ignored.
  result<std::vector<std::byte>> broadcast(std::vector<std::byte> bytes) const;
  // Moves the bytes of one rank directly to rank 0, which gets them. The others get nothing, and make no call.
  result<std::vector<std::byte>> bring_to_root(std::int32_t from, std::vector<std::byte> bytes) const;

 private:
  call_options patient(std::int32_t steps) const;

  communicator_ref comm_;
  rank_tree place_;
  std::vector<std::int32_t> children_;
  call_options call_;
};

}  // namespace shardmesh::detail
