// SPDX-License-Identifier: Apache-2.0
// subgroup: some ranks of a communicator as a communicator of their own, for instance those along one dimension of a
// mesh. Not here: which ranks hold what (layout).
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

/// Ranks of another communicator, numbered from 0. Its messages never meet those of the whole or of other subgroups:
/// no two live subgroups of a rank share a number. Tags of its exchanges are below 1023 << 12 (errc::invalid_argument).
/// Errors name ranks of the whole, and what poisons one poisons the other. Refers to the whole, which outlives it. Not
/// to be used from several threads at a time.
class subgroup_communicator {
 public:
  std::int32_t rank() const { return rank_; }
  std::int32_t size() const { return members_.size(); }
  /// Which ranks of the whole.
  const rank_group& members() const { return members_; }
  communicator_ref whole() const { return whole_; }

  /// Two exchanges between all members: sizes, then bytes.
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& options);
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& options);
  bool shares_memory() const { return whole_.shares_memory(); }
  device memory() const { return whole_.memory(); }
  bool is_ordered() const { return whole_.is_ordered(); }
  result<lending> start_lending(std::span<const lent> lends, std::span<const borrowed> borrows,
                                const call_options& options);
  void abort(const error& reason) { whole_.abort(reason); }
  /// As of `communicator_ref`: of the objects on this subgroup.
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
  held_number number_;  // keeps its tags apart
  object_numbers numbers_;
  std::vector<outgoing> sends_;
  std::vector<incoming> receives_;
  std::vector<lent> lends_;
  std::vector<borrowed> borrows_;
};

/// The members as a communicator. Collective over the members (who may be fewer than `comm`'s ranks); blocks for one
/// small all_gather among them. A subgroup of a subgroup is one of the whole.
/// \param members  ranks of `comm`, in the order of their new numbers; the same on all members
/// \errors errc::invalid_argument: this rank is not a member, or a member is not a rank of `comm` (names it);
///         errc::unsupported: members are in 1023 live subgroups already. Those of the communicator.
result<any_communicator> subgroup(communicator_ref comm, const rank_group& members, const call_options& call = {});

/// The ranks that differ from this one only in their coordinate along a mesh dimension, in its order. The mesh's ranks
/// are `comm`'s. Collective over them, as above.
/// \errors also errc::invalid_argument when the mesh has no such dimension or does not have this rank.
result<any_communicator> subgroup(communicator_ref comm, const device_mesh& mesh, std::string_view dimension,
                                  const call_options& call = {});

}  // namespace shardmesh
