// SPDX-License-Identifier: Apache-2.0
// subgroup: some ranks of a communicator as a communicator of their own, for instance the ranks along one mesh
// dimension. Room layout describes which rank holds which box.
export module shardmesh.comm:subgroup;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :any_communicator;
import :communicator_ref;
import :communicator;
import :lending;
import :object_numbers;
import :rank_group;

export namespace shardmesh {

/// Some ranks of another communicator (the whole), numbered from 0. Its messages never match those of the whole or of
/// other subgroups, because no two live subgroups of a rank share a number. Tags of its exchanges are below 1023 << 12
/// (errc::invalid_argument otherwise). Errors name ranks of the whole, and poisoning either poisons both. It refers to
/// the whole, which must outlive it. Not thread-safe.
class subgroup_communicator {
 public:
  std::int32_t rank() const { return rank_; }
  std::int32_t size() const { return members_.size(); }
  /// Returns the members, as ranks of the whole.
  const rank_group& members() const { return members_; }
  communicator_ref whole() const { return whole_; }

  /// Gathers in two exchanges between all members: first the sizes, then the bytes.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  bool shares_memory() const { return whole_.shares_memory(); }
  device memory() const { return whole_.memory(); }
  bool is_ordered() const { return whole_.is_ordered(); }
  result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options);
  void abort(const error& reason) { whole_.abort(reason); }
  /// Returns the numbers of the objects on this subgroup (see `communicator_ref::numbers`).
  object_numbers numbers() const { return numbers_; }

 private:
  friend result<any_communicator> subgroup(communicator_ref comm, const rank_group& members, const call_options& call);
  subgroup_communicator(communicator_ref whole, rank_group members, std::int32_t rank)
      : whole_(whole), members_(members), rank_(rank) {}
  call_options inside(const call_options& options) const;
  result<void> check_tag(const call_options& options) const;
  result<pending> exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                           const call_options& options);
  template <class Message>
  result<void> translate(std::span<const Message> messages, std::vector<Message>& translated) const;

  communicator_ref whole_;
  rank_group members_;
  std::int32_t rank_ = 0;
  held_number number_;  // keeps this subgroup's tags apart from all others
  object_numbers numbers_;
  std::vector<outgoing> sends_;
  std::vector<incoming> receives_;
  std::vector<lent> lends_;
  std::vector<borrowed> borrows_;
};

/// Makes a communicator of the members. Collective over the members only; blocks for one small all_gather among them.
/// A subgroup of a subgroup refers to the whole directly.
/// \param members  ranks of `comm`, in the order of their new numbers; equal on all members
/// \errors errc::invalid_argument: this rank is not a member, or a member is not a rank of `comm` (names it);
///         errc::unsupported: the members are in 1023 live subgroups already; the communicator's errors.
result<any_communicator> subgroup(communicator_ref comm, const rank_group& members, const call_options& call = {});

/// Makes a communicator of the ranks that differ from this one only in their coordinate along `dimension`, in the order
/// of that coordinate. The mesh's ranks are ranks of `comm`. Collective over those ranks, as above.
/// \errors those of the function above; errc::invalid_argument when the mesh lacks this dimension or this rank.
result<any_communicator> subgroup(communicator_ref comm, const device_mesh& mesh, std::string_view dimension,
                                  const call_options& call = {});

}  // namespace shardmesh
