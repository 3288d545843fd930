// SPDX-License-Identifier: Apache-2.0
// start_load: runs a load in a thread of its own. Reading itself is in load.
export module shardmesh.checkpoint:start_load;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :load;

export namespace shardmesh {

/// A load in the background, started by `start_load` in one process or on many ranks. Move-only.
class load_in_progress {
 public:
  /// Runs `work` in a new thread. An exception becomes an error of `wait`.
  /// \errors errc::no_memory when no thread can be started
  static result<load_in_progress> start(std::function<result<load_report>()> work);
  load_in_progress(load_in_progress&&) noexcept;
  load_in_progress& operator=(load_in_progress&&) noexcept;
  /// Waits for the load.
  ~load_in_progress();

  /// True when `wait` would not block.
  bool done() const;
  /// Blocks until the load has ended. Returns its report when everything was loaded, otherwise its error. May be called
  /// again.
  const result<load_report>& wait();

 private:
  struct state;
  explicit load_in_progress(std::unique_ptr<state> made);
  std::unique_ptr<state> state_;
};

/// Runs `load` in the background. `options.on_arrival` reports tensors, and `options.progress` bytes; both are called
/// from the new thread or its helpers. `options.cancel` cancels the load. The reader and the requests' memory must
/// outlive it, and no other code may touch that memory until its key has arrived.
/// \errors errc::no_memory when no thread can be started; `wait` returns those of `load`
result<load_in_progress> start_load(checkpoint_reader& reader, std::vector<load_request> requests,
                                    load_options options = {});

}  // namespace shardmesh
