// SPDX-License-Identifier: Apache-2.0
// What long work is given by whoever watches it from another thread. Of the Python package and the C interface.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>

import shardmesh;

namespace bindings {

/// What the work is given: whether to go on, and where to say how far it is. Both from any thread.
struct watch {
  std::stop_source stop;
  std::atomic<std::int64_t> bytes = 0;

  shardmesh::call_options call() const { return {.cancel = stop.get_token()}; }
  std::function<void(std::int64_t)> progress() {
    return [this](std::int64_t more) { bytes += more; };
  }
};

}  // namespace bindings
