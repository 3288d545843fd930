// SPDX-License-Identifier: Apache-2.0
// Errors as bytes, so that every rank can return one rank's error. Not here: when (agreement, transports).
export module shardmesh.comm:error_bytes;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// All fields of an error, for `error_from_bytes` in another process of the same program.
std::vector<std::byte> to_bytes(const error& e);
/// Nothing when the bytes are not those of an error. Never reads or allocates beyond what is there.
std::optional<error> error_from_bytes(std::span<const std::byte> bytes);

}  // namespace shardmesh
