// SPDX-License-Identifier: Apache-2.0
// Not exported: the requests of one rank in a load: its parts of tensors, and its objects. The comparison with the
// checkpoint and with other ranks is in request_match.
module shardmesh.collective_checkpoint:rank_requests;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.comm;
import shardmesh.checkpoint_core;
import shardmesh.checkpoint;
import :round_share;

namespace shardmesh {

// Tensors and objects are numbered as in the catalog.
class rank_requests {
 public:
  // `wanted` must outlive this.
  rank_requests(local_state& wanted, std::int32_t rank) : wanted_(wanted), rank_(rank) {}

  // Collects the memory of this rank's parts, and the positions of its entries in the catalog. Returns whether several
  // keys share some of the memory.
  result<bool> collect(const catalog& contents);

  // The tensors that the checkpoint has, ascending.
  std::vector<std::size_t> tensors() const;
  // Returns the requests for the parts of a tensor; empty if this rank has none.
  std::span<const load_request> parts_of(std::size_t tensor) const;
  // Returns the request for one part; null if this rank does not have the part.
  const load_request* part_of(std::size_t tensor, std::int64_t part) const;
  // Returns whether this rank wants elements of the tensor.
  bool wants(std::size_t tensor) const;
  // Returns whether all parts of this rank in a round lie within its memory.
  bool fits(const round_share& round) const;
  // Compares tied weights, after all parts have been filled.
  result<void> compare_ties();

  bool has_object(std::size_t object) const;
  // Keeps the stored value of an object of this rank.
  result<void> keep_object(std::size_t object, std::span<const std::byte> archive);
  // Sets this rank's objects to their stored values: those that were kept, and `objects`, the numbers and archives of
  // all ranks. Call it at the very end, so that an error leaves objects unchanged.
  result<void> set_objects(std::span<const std::byte> objects);

 private:
  local_state& wanted_;
  std::int32_t rank_;
  std::vector<load_request> parts_;      // tensor by tensor; see `first_part_`
  std::vector<std::size_t> first_part_;  // per tensor of `wanted_`
  detail::tied_destinations ties_;
  std::map<std::size_t, std::size_t> tensor_of_stored_, object_of_stored_;  // in `wanted_`, by place in the catalog
  std::map<std::size_t, local_state_object> found_;                         // of `wanted_`, with the stored values
};

}  // namespace shardmesh
