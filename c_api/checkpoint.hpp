// SPDX-License-Identifier: Apache-2.0
// The handle of an opened checkpoint.
#pragma once
#include <shardmesh/c_api/checkpoint.h>

#include <memory>
#include <mutex>
#include <shared_mutex>

#include "error.hpp"
#include "handle.hpp"

struct shardmesh_checkpoint {
  using mark_type = c_api::marked<c_api::handle_kind::checkpoint>;
  mark_type mark;
  std::unique_ptr<shardmesh::checkpoint_reader> reader;
  std::unique_ptr<shardmesh::tensor_map> tensors, unaligned_tensors;  // of the reader
  std::unique_ptr<shardmesh_error> warnings, problems;
  // Loads share it. Operations that readers do not promise to support from several threads hold it exclusively.
  std::shared_mutex use;
};

namespace c_api {

/// Holds one checkpoint exclusively, or two, which may be the same.
class taken_alone {
 public:
  explicit taken_alone(shardmesh_checkpoint& first, shardmesh_checkpoint* second = nullptr)
      : first_(first.use, std::defer_lock) {
    if (second != nullptr && second != &first) {
      second_ = std::unique_lock(second->use, std::defer_lock);
      std::lock(first_, second_);
    } else {
      first_.lock();
    }
  }

 private:
  std::unique_lock<std::shared_mutex> first_, second_;
};

}  // namespace c_api
