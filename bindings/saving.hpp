// SPDX-License-Identifier: Apache-2.0
// Fills the options that `convert` and `reshard` share with `save`.
#pragma once
#include <utility>

import shardmesh;

namespace bindings {

/// Sets the members that the options of `convert` and `reshard` share with those of `save`.
template <class Options>
void set_saving(Options& to, shardmesh::save_options from) {
  to.overwrite = from.overwrite;
  to.durable = from.durable;
  to.memory_bytes = from.memory_bytes;
  to.threads = from.threads;
  to.within = from.within;
  to.cancel = std::move(from.cancel);
  to.progress = std::move(from.progress);
  to.hooks = std::move(from.hooks);
}

}  // namespace bindings
