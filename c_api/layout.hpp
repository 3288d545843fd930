// SPDX-License-Identifier: Apache-2.0
// The handle of a layout.
#pragma once
#include <shardmesh/c_api/layout.h>

#include "handle.hpp"

struct shardmesh_layout {
  using mark_type = c_api::marked<c_api::handle_kind::layout>;
  mark_type mark;
  shardmesh::layout made;
};
