// SPDX-License-Identifier: Apache-2.0
// What a writer is given: tensors with where their bytes come from and how they are to be cut, objects, options; and
// what it reports. The writers of each format follow in their own partitions.
export module shardmesh.catalog:output;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.storage;
import :entries;
import :problem_report;

export namespace shardmesh {

/// One chunk of a destination: a box and the rank whose file holds it.
struct output_chunk {
  box where;
  std::int32_t rank = 0;
};

/// A tensor as it goes into the destination.
struct output_tensor {
  std::string key;
  path where;  // nested path, for formats that keep it; empty: one element, the key
  dtype type;  // as it is written
  stored_properties properties;
  std::vector<output_chunk> chunks;  // tile the tensor; a tensor without elements has one empty chunk
  tensor_transfer bytes;             // `from` is what the item_source holds; `to` is filled by the writer
  /// Set for an opaque tensor: its one chunk's archive, copied verbatim.
  std::function<result<std::vector<std::byte>>()> archive;
};

/// An object as it goes into the destination.
struct output_object {
  std::string key;
  path where;
  std::int32_t rank = 0;
  std::function<result<std::vector<std::byte>>()> archive;  // a complete torch.save archive (DCP)
  std::function<result<std::string>()> json;                // {"kind","type","value"} (objects.json)
};

/// How a checkpoint is written, by `save`, `convert`, `reshard` and saves of many ranks. By default a destination that
/// exists is an error (errc::destination_exists), and what is written is synced to the disk.
struct save_options {
  output_options output{};
  std::int64_t memory_bytes = default_memory_bytes;    // staging of all threads together
  int threads = 0;                                     // 0: all cores
  call_options call{};                                 // deadline and cancellation
  std::function<void(std::int64_t bytes)> progress{};  // called from any thread with the bytes that were just moved
  std::function<void()> before_commit{};  // called when all is written: the last moment at which a cancellation counts
  std::function<result<void>()> last_check{};  // before that, by writers of one process: an error leaves nothing behind
};

/// What was done, or why nothing was: `problems` is empty exactly when the destination was written.
struct save_report : problem_report {
  std::vector<std::string> notes;  // for the user: flat_param keys, scalars that were replicated, ...
  std::int64_t tensors = 0, bytes = 0, objects = 0, files = 0;
  std::int64_t skipped_tensors = 0, skipped_objects = 0;  // the destination cannot hold them and the user said to skip
  std::int64_t excluded = 0;                              // by the selection
};

/// The executor's part of these options.
item_run_options run_options_of(const save_options& options);

/// What a writer does last before it commits. \errors errc::cancelled
result<void> ask_before_commit(const save_options& options);

/// The report of one problem; of several.
save_report failed(error problem);
save_report refused(std::vector<error> problems);

}  // namespace shardmesh
