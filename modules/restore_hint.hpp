// SPDX-License-Identifier: Apache-2.0
// The remedy in errors about damaged bytes. Shared by all rooms; only .cpp files include it.
#pragma once
#include <string_view>

namespace shardmesh::detail {

inline constexpr std::string_view restore_hint = "restore the file from another copy";

}  // namespace shardmesh::detail
