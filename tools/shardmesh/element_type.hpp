// SPDX-License-Identifier: Apache-2.0
// The value of --dtype in `layout` and `plan`.
#pragma once
#include <string>

import shardmesh;

namespace tool {

/// Returns the dtype of this name, in PyTorch's spelling. \errors errc::invalid_argument, with the nearest name
shardmesh::result<shardmesh::dtype> element_type(const std::string& given);

}  // namespace tool
