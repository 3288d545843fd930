// SPDX-License-Identifier: Apache-2.0
// hmac_sha256: message authentication codes with a shared key.
export module shardmesh.digest:hmac;

import shardmesh.std;

export namespace shardmesh {

/// Returns the HMAC-SHA256 of `message` under `key` (RFC 2104). Both may be empty. Cost: linear in both.
std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

}  // namespace shardmesh
