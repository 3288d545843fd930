// SPDX-License-Identifier: Apache-2.0
// start_load: a load that goes on in a thread of its own. Not here: how it reads (load).
export module shardmesh.checkpoint:start_load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :load;

export namespace shardmesh {

/// A load that goes on in the background: what `start_load` of one process and of many ranks gives. Move-only.
class load_in_progress {
 public:
  /// Runs `work` in a new thread; what it throws becomes the report's problem.
  /// \errors errc::no_memory when there can be no thread
  static result<load_in_progress> start(std::function<load_report()> work);
  load_in_progress(load_in_progress&&) noexcept;
  load_in_progress& operator=(load_in_progress&&) noexcept;
  /// Waits.
  ~load_in_progress();

  /// True when `wait` would not block.
  bool done() const;
  /// Blocks until the load has come to its end; what became of it: `problems` is empty exactly when all was loaded. May
  /// be called again.
  const load_report& wait();

 private:
  struct state;
  explicit load_in_progress(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

/// `load` in the background. Tensors come through `options.arrived`, bytes through `options.progress`, both called from
/// that thread or its helpers; `options.call` cancels it. The reader and the memory of the requests outlive it, and
/// nobody else touches that memory until its key has arrived.
/// \errors errc::no_memory; those of `load` are the one problem of the report
result<load_in_progress> start_load(checkpoint_reader& reader, std::vector<load_request> requests,
                                    load_options options = {});

}  // namespace shardmesh
