// SPDX-License-Identifier: Apache-2.0
// The options and reports of `step_replicas`.
export module shardmesh.replicas:replicas_options;

import shardmesh.std;
import shardmesh.core;
import shardmesh.transfer;
import shardmesh.checkpoint;
import shardmesh.run;

export namespace shardmesh {

/// The options of `step_replicas`. `copies` is the same on every rank (errc::disagreement).
struct replicas_options {
  /// The number of failure domains that hold each box, including that of a rank that trains with it. Any `copies` - 1
  /// domains can then be lost.
  std::int32_t copies = 2;
  /// Returns the name of the failure domain of a rank, such as its node or rack. Each call on a communicator calls it
  /// once on each rank, with the rank's own number, and the ranks exchange the answers. Empty: the name of the host.
  std::function<std::string(std::int32_t rank)> failure_domain{};
  /// The most bytes of elements that this rank keeps. While a step is copied, the one before is still kept, so the
  /// bound must have room for both.
  std::int64_t memory_bytes = unlimited_memory;
};

/// The options of one `keep`. The first two are the same on every rank.
struct keep_options {
  bool skip_objects = false;         // keep the tensors only
  bool lowest_rank_objects = false;  // as in `rank_save_options`
  time_limit within{};               // of the whole call, also in the background
  std::stop_token cancel{};
  std::function<void(std::int64_t bytes)> progress{};  // called with the bytes just received
};

/// The facts of a `keep` that succeeded. Counts of bytes are of this rank, and of elements.
struct keep_report {
  std::int64_t step = 0;
  std::int64_t kept_bytes = 0;  // of the step, in this rank's memory: its own boxes and copies for others
  std::int64_t sent_bytes = 0, received_bytes = 0;
  /// The number of boxes whose replicas differ between ranks that train with them, among the ranks that keep them. The
  /// first keeper's values are kept.
  std::int64_t differing_boxes = 0;
};

/// A step in the memory of the ranks of a communicator.
struct available_step {
  std::int64_t step = 0;
  /// errc::gap with the key and the box of each lost part, of which the first 100 are kept. Nothing: `resume` can load
  /// the step.
  std::optional<error> lost;
  std::int64_t damaged_copies = 0;  // copies whose bytes do not have their digest
};

/// A step that was resumed, from memory or from the store.
struct resumed_step {
  std::optional<std::int64_t> step;  // nothing: neither the memory nor the store has a step
  bool is_from_memory = false;
  std::vector<error> skipped;       // steps that could not be loaded: newer ones, and those of the memory
  std::int64_t damaged_copies = 0;  // of the step in memory; other copies took their place
  load_report loaded;               // of this rank; `bytes_read` counts only reads of the store
  // Of a step of the store, as in `resumed_run`; the memory has no objects of single ranks.
  objects_of_rank rank_objects{};
  std::vector<std::string> dropped{};
};

/// One box that this rank keeps. The memory is read-only, and lives until the next call of its `step_replicas`.
struct kept_copy {
  std::int64_t step = 0;
  std::string key;
  bool is_object = false;  // the bytes are a torch.save archive
  box where;
  const_tensor_view memory;
};

}  // namespace shardmesh
