// SPDX-License-Identifier: Apache-2.0
// error_bytes: errors as bytes, so that every rank can return the error of one rank. agreement and the transports
// exchange them.
export module shardmesh.comm:error_bytes;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// Serialises all fields of an error, for `error_from_bytes` in another process of the same program. At most
/// `error::max_others` others are kept, and the rest is counted. Others have no others of their own.
std::vector<std::byte> to_bytes(const error& e);
/// Parses an error, or returns nothing when the bytes are not one. Reads and allocates no more than the bytes hold.
std::optional<error> error_from_bytes(std::span<const std::byte> bytes);

}  // namespace shardmesh

export namespace shardmesh::detail {

// Adds the rank that reports an error, unless the error already names ranks or is errc::gap: the rank that finds a gap
// is not to blame for it. The error's others are treated in the same way.
error reported_by(error e, std::int32_t rank);

}  // namespace shardmesh::detail
