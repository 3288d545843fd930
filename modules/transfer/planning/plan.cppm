// SPDX-License-Identifier: Apache-2.0
// plan: from distributions to what every owner sends, receives and does, before a byte moves. Nothing global is
// expanded: one owner's part is made on demand. Not here: moving bytes.
export module shardmesh.transfer:plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan_cost;
import :rank_plan;
import :step;

export namespace shardmesh {

/// `plan_options::memory_bytes` of an exchange that moves all at once.
inline constexpr std::int64_t unlimited_memory = std::numeric_limits<std::int64_t>::max();

/// Bytes of `from` to where `to` wants them. `to` need not cover the tensor; `from` must hold what `to` wants.
struct tensor_transfer {
  distribution from, to;
  dtype from_type = dtype::undefined, to_type = dtype::undefined;
};

/// What `plan` may do: how much memory an exchange takes, which casts, in which order sums are made. Part of the plan,
/// so the same on every rank.
struct plan_options {
  /// Most bytes of messages and staging alive on one owner at a time; 0: a sixteenth of what it holds and wants, and
  /// 32 MiB. An exchange that needs more is cut into rounds, within tensors too; the bytes are the same.
  std::int64_t memory_bytes = 0;
  bool allow_narrowing = false;  // casts that lose values
  /// Sums in ascending term order. False: what is an all_reduce or a reduce_scatter of the whole communicator is done
  /// by it, if it is a `collective_communicator`, in its own order.
  bool deterministic = true;
  std::int64_t reduce_grain_bytes = 4096;  // a reduction is spread over its term holders in parts of at least this size
};

/// What moves between whom. Immutable, cheap to copy.
/// Rules: a receiver that holds a cell copies its own; otherwise the i-th of a cell's receivers (in owner order,
/// without those that hold it) takes it from holder i mod k of its k holders. Terms of a Partial meet at one owner,
/// which is one of those with the least to receive, are combined in ascending term order, and the result goes to the
/// receivers. A Partial destination with another reduction or number of terms gets the value as term 0, the identity
/// elsewhere.
class transfer_plan {
 public:
  transfer_plan();

  std::span<const tensor_transfer> transfers() const;
  const plan_options& options() const;

  /// Equal when the same bytes move the same way: over distributions, dtypes and options.
  digest128 digest() const;
  /// Bytes of all copies, those within one owner too. Cost of this and the next two: O(copies) once.
  std::int64_t bytes_total() const;
  /// Bytes that travel between different owners.
  std::int64_t bytes_moved() const;
  /// Bytes that travel from one owner to another. Cost: O(copies of `from`) when it is asked for first, O(log its
  /// peers) from then on: all pairs cost one pass. Memory: 16 bytes per pair over which something travels, of the
  /// owners that were asked for; at most about 64 MiB.
  std::int64_t bytes(owner_id from, owner_id to) const;
  /// The least that any plan moves: what owners want and do not hold; for terms, per cell, those that the best reducer
  /// lacks and one result for every other receiver. Computed without the plan. Cost: O(fragments), with terms
  /// O(copies).
  std::int64_t lower_bound() const;

  /// All of that, per owner and per link, with the memory that each owner takes. Cost: O(copies of all owners).
  plan_cost cost() const;

  /// What one owner does. Cost: O(its copies), equal transfers share them; O(transfers) for an owner that was asked for
  /// lately.
  rank_plan for_owner(owner_id owner, owner_space space = owner_space::ranks) const;

  struct state;

 private:
  friend result<transfer_plan> plan(std::vector<tensor_transfer> transfers, plan_options options);
  std::shared_ptr<const state> state_;
};

/// Some lines for people: the sums, owners with their links, transfers. Long lists are cut; of a plan between very many
/// owners only what is known without counting every copy.
std::string to_string(const transfer_plan& plan);

/// Plans transfers.
/// \errors errc::shape_mismatch, errc::narrowing, errc::unsupported (no such cast; terms of items), errc::unaligned
///         (a sub-byte type is cut inside a byte), errc::gap naming boxes that nobody holds, errc::overlap naming
///         owners and boxes, errc::mixed_partial. `ranks`, `boxes` and the index of the transfer in the message say
///         where.
/// Cost: O(transfers); lists that are not complete by construction are checked, O(n log n). No communication.
result<transfer_plan> plan(std::vector<tensor_transfer> transfers, plan_options options = {});

}  // namespace shardmesh
