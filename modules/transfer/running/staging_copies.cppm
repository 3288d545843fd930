// SPDX-License-Identifier: Apache-2.0
// Copies, in the run's memory, of slots that lie in other memory. They are filled before a run and written back after
// it. The choice of the run's memory is in `executor`. Exports nothing.
module shardmesh.transfer:staging_copies;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;

namespace shardmesh {

class staging_copies {
 public:
  static bool lies_in(const const_tensor_view& slot, device memory) {
    return slot.where == memory || (slot.where.type == device_type::cpu && memory.type == device_type::cpu);
  }

  // A row-major copy of the slot in `memory`; pinned if that is host memory. \errors errc::no_memory
  result<const_tensor_view> of_source(const const_tensor_view& slot, device memory);
  // `is_written_whole`: the run overwrites the whole slot, so its old contents are not copied.
  result<tensor_view> of_destination(const tensor_view& slot, device memory, bool is_written_whole);
  void clear() { copies_.clear(); }
  bool empty() const { return copies_.empty(); }

  // `pull` fills the copies from their slots; `push` writes back the written ones. With a stream, both are enqueued on
  // it.
  result<void> pull(const call_options& call) const;
  result<void> push(const call_options& call) const;

 private:
  struct slot_copy {
    const_tensor_view slot;
    std::optional<tensor_view> written;  // the slot again, if it is a destination
    tensor_view copy;
    bool is_pulled = true;
    device_buffer memory;
  };
  result<tensor_view> make(const const_tensor_view& slot, device memory, bool is_pulled);
  std::vector<slot_copy> copies_;
};

}  // namespace shardmesh
