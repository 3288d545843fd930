// SPDX-License-Identifier: Apache-2.0
// The texts of the files in mapping/conventions, which the build compiles in.
#pragma once
#include <span>
#include <string_view>

namespace shardmesh::detail {

struct shipped_mapping {
  std::string_view file, text;
};

std::span<const shipped_mapping> shipped_mappings();

}  // namespace shardmesh::detail
