// SPDX-License-Identifier: Apache-2.0
// Not exported: this rank's memory in the transfers of a mapping, and the work that follows them on the rank alone:
// comparisons, operations on values, filler, and copies of repeated elements and tied targets.
module shardmesh.mapping:mapped_memory;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import shardmesh.transfer;
import :mapped_moves;
import :piece_sides;

namespace shardmesh {

// The bindings of all transfers on one rank.
class mapped_memory {
 public:
  // Refers to its arguments, which must outlive it. A defect of the memory becomes the `problem` of a binding, which
  // the run reports on every rank.
  // \param from, to                the tensors of `moves`
  // \param from_memory, to_memory  this rank's memory of them
  mapped_memory(const mapped_moves& moves, std::span<const held_tensor> from, std::span<const held_tensor> to,
                std::span<const const_tensor_binding> from_memory, std::span<const tensor_binding> to_memory,
                owner_id rank);

  std::span<const const_tensor_binding> sources() const { return sources_; }
  std::span<const tensor_binding> destinations() const { return destinations_; }

  // Completes the targets of this rank after the run. \errors errc::disagreement, those of `apply_steps` and
  // `copy_between`; each names the key and the rank
  result<void> finish();

 private:
  // This rank's part of a `piece_move`.
  struct piece_memory {
    std::vector<target_place> places;
    std::vector<std::vector<host_tensor>> staged;  // per source, per slot
  };

  void bind_whole(const whole_move& move);
  void bind_tie(const tie_move& move);
  piece_memory bind_piece(const piece_move& move);
  result<void> stage(const piece_move& move, piece_memory& mine);
  result<void> finish(const piece_move& move, piece_memory& mine) const;
  result<void> compare_tie(std::size_t number) const;
  result<void> copy_tied(const tied_copy& one) const;
  result<void> finish_slot(const piece_move& move, const box& where, std::span<host_tensor* const> copies) const;

  const mapped_moves& moves_;
  std::span<const held_tensor> from_, to_;
  std::span<const const_tensor_binding> from_memory_;
  std::span<const tensor_binding> to_memory_;
  owner_id rank_;
  std::vector<std::optional<error>> from_problems_, to_problems_;  // per tensor
  std::vector<const_tensor_binding> sources_;                      // per transfer
  std::vector<tensor_binding> destinations_;
  std::vector<piece_memory> pieces_;  // per piece
  std::vector<std::vector<host_tensor>>
      ties_;  // per tie: the partner's elements, for each slot; empty without transfer
};

}  // namespace shardmesh
