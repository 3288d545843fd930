// SPDX-License-Identifier: Apache-2.0
// The C interface's error: a copy of ours, its text, and the next one of a list.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "border.hpp"

struct shardmesh_error {
  shardmesh_status status = SHARDMESH_INTERNAL;
  shardmesh::error fields;
  std::string text;
  std::vector<shardmesh_box> boxes;
  std::unique_ptr<shardmesh_error> next;

  shardmesh_error() = default;
  shardmesh_error(shardmesh_status code, const shardmesh::error& e);
  shardmesh_error(const shardmesh_error&) = delete;
  shardmesh_error& operator=(const shardmesh_error&) = delete;
  ~shardmesh_error();
};

namespace c_api {

/// A list of errors; null if there are none.
std::unique_ptr<shardmesh_error> list_of(const std::vector<shardmesh::error>& errors);

}  // namespace c_api
