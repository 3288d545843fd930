// SPDX-License-Identifier: Apache-2.0
// wipe_memory: overwrites secrets before their memory is freed.
export module shardmesh.digest:wipe;

import shardmesh.std;

export namespace shardmesh {

/// Overwrites `bytes` with zeros. The compiler does not remove the call, even if the memory is freed next.
void wipe_memory(std::span<std::byte> bytes) noexcept;

}  // namespace shardmesh
