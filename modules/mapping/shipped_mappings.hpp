// SPDX-License-Identifier: Apache-2.0
// The files of mapping/conventions, as of the build.
#pragma once
#include <span>
#include <string_view>

namespace shardmesh::detail {

struct shipped_mapping {
  std::string_view file, text;
};

std::span<const shipped_mapping> shipped_mappings();

}  // namespace shardmesh::detail
