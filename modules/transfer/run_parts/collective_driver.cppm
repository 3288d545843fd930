// SPDX-License-Identifier: Apache-2.0
// The transfers of a run that are collectives of the communicator, slab by slab. They move before the batches of the
// route. The choice of these transfers is in `collective`. Exports nothing.
module shardmesh.transfer:collective_driver;

import shardmesh.std;
import shardmesh.core;
import shardmesh.comm;
import :bound_memory;
import :collective;
import :route;
import :run_call;
import :scratch;
import :slab_walk;

namespace shardmesh {

class collective_driver {
 public:
  // References must outlive this object. `groups` are for collectives among some of the ranks.
  collective_driver(communicator_ref comm, std::vector<communicator_ref> groups, std::vector<collective_use> uses,
                    const route& r, const bound_memory& bound, run_call& call, scratch& host_room);

  // The most bytes of a packed slab and its landing buffer.
  inline std::int64_t room_bytes() const { return room_bytes_; }

  // Goes back to the first collective, for a new run.
  void begin();
  // Advances the collectives. Returns true when all of them are over, and false if it would have to block and may not.
  // `device_room` is a backend's scratch memory of at least `room_bytes`; null: slabs are packed in host memory.
  result<bool> advance(bool may_block, std::byte* device_room);
  // Ends the collective of a communicator that was aborted: returns when no memory is in use.
  void end_aborted();

 private:
  result<void> begin_slab(const collective_use& use, const box& slab, std::byte* device_room);
  result<void> end_slab(const collective_use& use, const box& slab);
  result<pending> start(const collective_use& use, std::span<const std::byte> send, std::span<std::byte> receive) const;
  inline dtype type_of(const collective_use& use) const { return route_.types[use.transfer].from; }
  // The most elements of one block in a slab.
  std::int64_t slab_elements(const collective_use& use) const;

  communicator_ref comm_;
  std::vector<communicator_ref> groups_;
  std::vector<collective_use> uses_;
  const route& route_;
  const bound_memory& bound_;
  run_call& call_;
  scratch& host_room_;
  std::int64_t room_bytes_ = 0;

  std::size_t next_ = 0;            // the current collective
  std::optional<slab_walk> slabs_;  // of the current collective
  std::optional<box> slab_;         // the slab that is in flight
  std::byte* landing_ = nullptr;    // the address at which it arrives
  pending in_flight_;
};

}  // namespace shardmesh
