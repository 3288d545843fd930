// SPDX-License-Identifier: Apache-2.0
// The planner: turns distributions into each owner's sends, receives, and local work, before a byte moves. It expands
// nothing globally: each owner's part is made on demand. The code that moves bytes is in `executor`.
export module shardmesh.transfer:plan;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan_cost;
import :rank_plan;
import :step;

export namespace shardmesh {

/// The value of `plan_options::memory_bytes` with which an exchange moves everything at once.
inline constexpr std::int64_t unlimited_memory = std::numeric_limits<std::int64_t>::max();

/// One tensor's move from `from` to `to`. `to` need not cover the tensor; `from` must hold every cell that `to` wants.
struct tensor_transfer {
  distribution from, to;
  dtype from_type = dtype::undefined, to_type = dtype::undefined;
};

/// The limits of a plan: its memory, its casts, and its order of summation. The options are part of the plan and
/// therefore equal on every rank.
struct plan_options {
  /// The most bytes of messages and staging that are alive on one owner at a time. 0 stands for 32 MiB plus a sixteenth
  /// of the bytes that the owner holds and wants. A larger exchange is cut into rounds, within tensors if necessary;
  /// the rounds move the same bytes.
  std::int64_t memory_bytes = 0;
  bool allow_narrowing = false;  // permits casts that lose values
  /// Sums terms in ascending order. If false, a `collective_communicator` does every reduction that is an all_reduce or
  /// a reduce_scatter, of the whole communicator or along one dimension of the mesh, in its own order.
  bool deterministic = true;
  std::int64_t reduce_grain_bytes = 4096;  // smallest part into which a reduction is spread over owners
};

/// The copies and reductions between owners. Immutable, cheap to copy.
/// A receiver that holds a cell copies its own. Otherwise the i-th receiver of the cell takes it from holder i mod k of
/// the k holders. Receivers are numbered in owner order, leaving out holders.
/// The terms of a Partial meet at an owner that has the least to receive. That owner combines them in ascending term
/// order and sends the result to the receivers.
/// A Partial destination whose reduction or number of terms differs from the source's gets the value as term 0, and the
/// identity as every other term.
class transfer_plan {
 public:
  transfer_plan();

  std::span<const tensor_transfer> transfers() const;
  const plan_options& options() const;

  /// Digest of the distributions, dtypes, and options. Plans with equal digests move the same bytes in the same way.
  digest128 digest() const;
  /// Bytes of all copies, including those within one owner.
  /// Cost: O(copies) once, shared with `bytes_moved`.
  std::int64_t bytes_total() const;
  /// Bytes that travel between different owners.
  std::int64_t bytes_moved() const;
  /// Bytes that travel from one owner to another.
  /// Cost: O(copies of `from`) at the first call for `from`, then O(log peers), so all pairs cost one pass. Memory: 16
  /// bytes per pair with traffic, for the requested owners only; at most about 64 MiB.
  std::int64_t bytes(owner_id from, owner_id to) const;
  /// The fewest bytes that any plan moves: the cells that owners want and lack. A cell with terms counts the terms that
  /// its best reducer lacks and one result for each other receiver. The plan itself is not expanded.
  /// Cost: O(fragments); O(copies) with terms.
  std::int64_t lower_bound() const;

  /// Returns all of these numbers, per owner and per link, and each owner's peak memory.
  /// Cost: O(copies of all owners).
  plan_cost cost() const;

  /// One owner's part of the plan. Equal transfers share their steps.
  /// Cost: O(copies of the owner); O(transfers) if the owner was requested recently.
  rank_plan for_owner(owner_id owner, owner_space space = owner_space::ranks) const;

  struct state;

 private:
  friend result<transfer_plan> plan(std::vector<tensor_transfer> transfers, plan_options options);
  std::shared_ptr<const state> state_;
};

/// Formats a plan in a few lines: totals, owners with their links, and transfers. Long lists are shortened. For very
/// many owners, only the numbers that do not require counting every copy are given.
std::string to_string(const transfer_plan& plan);

/// Plans transfers.
/// \errors errc::shape_mismatch, errc::narrowing, errc::unsupported (no such cast; items with terms; a reduction of a
///         sub-byte type), errc::unaligned (a sub-byte type is cut inside a byte), errc::overflow (the tensor's bytes
///         do not fit in 64 bits), errc::gap naming wanted boxes without a holder, errc::overlap naming owners and
///         boxes, errc::mixed_partial. The error's `ranks` and `boxes`, and the transfer's index in its message, give
///         the place.
/// Cost: O(transfers). Distributions made from lists are also checked for gaps and overlaps, in O(n log n). No
/// communication.
result<transfer_plan> plan(std::vector<tensor_transfer> transfers, plan_options options = {});

}  // namespace shardmesh
