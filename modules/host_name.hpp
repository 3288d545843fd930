// SPDX-License-Identifier: Apache-2.0
// The name of this machine. Shared by all rooms; only .cpp files include it.
#pragma once
#include <unistd.h>

#include <array>
#include <string>

namespace shardmesh::detail {

/// Returns the name of this machine; empty if the system states none.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

}  // namespace shardmesh::detail
