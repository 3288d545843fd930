// SPDX-License-Identifier: Apache-2.0
// sha1_hex: names that other programs derive with SHA-1. Nothing is protected by it: use sha256.
export module shardmesh.digest:sha1;

import shardmesh.std;

export namespace shardmesh {

/// Returns the SHA-1 of `bytes` as 40 lower-case hexadecimal digits. SHA-1 is broken: compare no untrusted data with
/// it.
std::string sha1_hex(std::span<const std::byte> bytes);

}  // namespace shardmesh
