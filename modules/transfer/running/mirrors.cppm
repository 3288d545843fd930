// SPDX-License-Identifier: Apache-2.0
// Not exported: slots of a run that lie in another memory than the one it works in: copied there before, and back after
// it. Not here: which memory that is (executor).
module shardmesh.transfer:mirrors;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;

namespace shardmesh {

class slot_mirrors {
 public:
  static bool lies_in(const const_tensor_view& slot, device memory) {
    return slot.where == memory || (slot.where.type == device_type::cpu && memory.type == device_type::cpu);
  }

  // A row-major copy of the slot in `memory`: of the host it is pinned. \errors errc::no_memory
  result<const_tensor_view> of_source(const const_tensor_view& slot, device memory);
  // `is_written_whole`: what is there before the run does not count.
  result<tensor_view> of_destination(const tensor_view& slot, device memory, bool is_written_whole);
  void clear() { mirrors_.clear(); }
  bool empty() const { return mirrors_.empty(); }

  // Slots into their mirrors, and what was written back into the slots. With a stream: enqueued there.
  result<void> pull(const call_options& call) const;
  result<void> push(const call_options& call) const;

 private:
  struct mirror {
    const_tensor_view slot;
    std::optional<tensor_view> written;  // the slot again, of a destination
    tensor_view copy;
    bool is_pulled = true;
    device_buffer memory;
  };
  result<tensor_view> make(const const_tensor_view& slot, device memory, bool is_pulled);
  std::vector<mirror> mirrors_;
};

}  // namespace shardmesh
