// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>
module shardmesh.checkpoint_core;

namespace shardmesh {

item_run_options run_options_of(const save_options& options) {
  item_run_options run;
  run.memory_bytes = options.memory_bytes;
  run.threads = options.threads;
  run.call = options.call();
  run.progress = options.progress;
  return run;
}

result<void> ask_before_commit(const save_options& options) {
  if (options.hooks.last_check) SHARDMESH_TRY(options.hooks.last_check());
  if (options.hooks.before_commit) options.hooks.before_commit();
  if (options.cancel.stop_requested()) return detail::limit_error(errc::cancelled, "save");
  return {};
}

}  // namespace shardmesh
