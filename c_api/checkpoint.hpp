// SPDX-License-Identifier: Apache-2.0
// The handle of an opened checkpoint.
#pragma once
#include <shardmesh/c_api/checkpoint.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "error.hpp"
#include "handle.hpp"
#include "watching.hpp"

struct shardmesh_checkpoint {
  using mark_type = c_api::marked<c_api::handle_kind::checkpoint>;
  mark_type mark;
  std::unique_ptr<shardmesh::checkpoint_reader> reader;
  std::unique_ptr<shardmesh::tensor_map> tensors, unaligned_tensors;  // of the reader
  std::unique_ptr<shardmesh_error> warnings, problems;
  // Loads share it. Operations that readers do not promise to support from several threads hold it exclusively.
  std::shared_timed_mutex use;
};

namespace c_api {

/// The time between two looks at whether a call that waits for others must end.
inline constexpr std::chrono::milliseconds between_looks{10};

/// Holds one checkpoint exclusively, or two, which may be the same.
class taken_alone {
 public:
  explicit taken_alone(shardmesh_checkpoint& only) : first_(only.use) {}
  /// For work that can be stopped while it waits for other calls. \throws errc::cancelled
  taken_alone(const bindings::watch& watching, shardmesh_checkpoint& first, shardmesh_checkpoint* second = nullptr)
      : first_(first.use, std::defer_lock) {
    if (second != nullptr && second != &first) second_ = std::unique_lock(second->use, std::defer_lock);
    while (!try_both()) check_stopped(watching);
  }

 private:
  bool try_both() {
    if (!first_.try_lock_for(between_looks)) return false;
    if (second_.mutex() == nullptr || second_.try_lock_for(between_looks)) return true;
    first_.unlock();
    return false;
  }

  std::unique_lock<std::shared_timed_mutex> first_, second_;
};

/// Holds a checkpoint together with other loads; work can be stopped while it waits. \throws errc::cancelled
inline std::shared_lock<std::shared_timed_mutex> shared_use(const bindings::watch& watching,
                                                            shardmesh_checkpoint& checkpoint) {
  std::shared_lock held(checkpoint.use, std::defer_lock);
  while (!held.try_lock_for(between_looks)) check_stopped(watching);
  return held;
}

}  // namespace c_api
