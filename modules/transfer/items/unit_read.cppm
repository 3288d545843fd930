// SPDX-License-Identifier: Apache-2.0
// Not exported: the read of one unit of `read_units` into the memory of its demands.
module shardmesh.transfer:unit_read;

import shardmesh.std;
import shardmesh.core;
import :items;
import :read_units;
import :run_items;

namespace shardmesh {

// Memory for one piece of work at a time, reused by the next. Thread-safe. Not thread-local, for the reason in
// `concurrent_runs`.
class spare_buffers {
 public:
  explicit spare_buffers(int threads);
  std::vector<std::byte> take();
  void give_back(std::vector<std::byte> buffer);

 private:
  std::mutex lock_;
  std::vector<std::vector<std::byte>> spare_;
};

// Reads a unit, and calls `options.progress`.
// \errors those of the source and of the memory's backend; errc::cancelled, errc::deadline_exceeded
result<void> read_to_memory(const any_item_source& source, const read_unit& work, spare_buffers& spare,
                            const item_run_options& options);

}  // namespace shardmesh
