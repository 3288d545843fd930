// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>

#include <string>
module shardmesh.digest;

namespace shardmesh {

std::string to_hex(const digest128& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

}  // namespace shardmesh
