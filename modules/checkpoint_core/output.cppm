// SPDX-License-Identifier: Apache-2.0
// The input of writers (tensors with the source of their bytes and their chunks, objects, options) and their report.
// Each format's writer is in the format's own module.
export module shardmesh.checkpoint_core:output;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.layout;
import shardmesh.transfer;
import shardmesh.storage;
import :entries;

export namespace shardmesh {

/// One chunk of a destination: a box, and the rank whose file holds it.
struct output_chunk {
  box where;
  std::int32_t rank = 0;
};

/// A tensor to be written.
struct output_tensor {
  std::string key;
  path where;  // nested path, for formats that keep it; empty: the key is the path's only element
  dtype type;  // in the destination
  stored_properties properties;
  std::vector<output_chunk> chunks;  // tile the tensor; a tensor without elements has one empty chunk
  tensor_transfer bytes;             // `from` is what the item_source holds; the writer fills `to`
  /// Set for an opaque tensor: returns the archive of its one chunk, which is copied verbatim.
  std::function<result<std::vector<std::byte>>()> archive;
};

/// An object to be written.
struct output_object {
  std::string key;
  path where;
  std::int32_t rank = 0;
  std::function<result<std::vector<std::byte>>()> archive;  // a complete torch.save archive (DCP)
  std::function<result<std::string>()> json;                // {"kind","type","value"} (objects.json)
};

/// Functions that a save calls before its destination appears, for programs that build on saves.
struct commit_hooks {
  folder_rule may_replace{};  // with `overwrite`: decides which folders; empty: those that hold one checkpoint alone
  /// Called when everything is written: the last moment at which cancellation takes effect.
  std::function<void()> before_commit{};
  /// Called before `before_commit`; of ranks that save together, on each rank. An error leaves nothing behind.
  std::function<result<void>()> last_check{};
};

/// The options of `save`. Those of `convert`, `reshard`, and saves of many ranks have the same members, with the same
/// defaults. By default, an existing destination is an error (errc::destination_exists), and the written data is synced
/// to disk.
struct save_options {
  bool overwrite = false;                              // replace an existing destination
  bool durable = true;                                 // sync to disk; without it, a power cut can lose the new data
  std::int64_t memory_bytes = default_memory_bytes;    // staging memory of all threads together
  int threads = 0;                                     // 0: all cores
  time_limit within{};                                 // a duration or a time point (errc::deadline_exceeded)
  std::stop_token cancel{};                            // errc::cancelled
  std::function<void(std::int64_t bytes)> progress{};  // called on any thread with the number of bytes just moved
  commit_hooks hooks{};
  /// DCP: an earlier checkpoint of shardmesh in the destination's parent folder. The new one refers to the chunks that
  /// have not changed since, instead of writing them. `convert` and `reshard` write whole checkpoints.
  std::filesystem::path previous{};

  /// Returns the limits of the call.
  call_options call() const { return {.within = within, .cancel = cancel}; }
  /// Returns the options of the staged output.
  output_options output() const {
    return {.overwrite = overwrite, .durable = durable, .may_replace = hooks.may_replace, .memory_bytes = memory_bytes};
  }
};

/// The facts of a save that succeeded. A save that fails returns an `error` with all its problems instead.
struct save_report {
  std::vector<std::string> notes;  // for the user: flat_param keys, replicated scalars, ...
  std::int64_t tensors = 0, bytes = 0, objects = 0, files = 0;
  std::int64_t skipped_tensors = 0, skipped_objects = 0;  // skipped on request: the destination cannot hold them
  std::int64_t excluded = 0;                              // entries that the selection left out
  std::int64_t referred_bytes = 0;                        // the part of `bytes` that earlier checkpoints hold

  /// Returns the part of `bytes` that this save wrote.
  std::int64_t written_bytes() const { return bytes - referred_bytes; }
};

/// Returns the options that concern the executor.
item_run_options run_options_of(const save_options& options);

/// Runs the last checks before a writer commits.
/// \errors errc::cancelled; those of `last_check`
result<void> ask_before_commit(const save_options& options);

}  // namespace shardmesh

// Exported for other rooms; not for users.
export namespace shardmesh::detail {

// Options that have the members of save_options.
template <class Options>
concept saving_options = requires(const Options& from) {
  save_options{from.overwrite, from.durable, from.memory_bytes, from.threads,
               from.within,    from.cancel,  from.progress,     from.hooks};
};

// Returns the members that `from` has in common with save_options. `previous` is not one of them.
template <saving_options Options>
save_options saving_of(const Options& from) {
  return {.overwrite = from.overwrite,
          .durable = from.durable,
          .memory_bytes = from.memory_bytes,
          .threads = from.threads,
          .within = from.within,
          .cancel = from.cancel,
          .progress = from.progress,
          .hooks = from.hooks};
}

}  // namespace shardmesh::detail
