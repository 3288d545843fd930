// SPDX-License-Identifier: Apache-2.0
module;
#include <openssl/crypto.h>

#include <cstddef>
#include <span>
module shardmesh.digest;

namespace shardmesh {

void wipe_memory(std::span<std::byte> bytes) noexcept {
  if (!bytes.empty()) OPENSSL_cleanse(bytes.data(), bytes.size());
}

}  // namespace shardmesh
