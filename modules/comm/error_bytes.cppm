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

export namespace shardmesh::detail {

// An error as this rank tells it to others: it names the rank that it comes from, unless it names ranks already or is
// of what no rank holds, for which the one that finds it is not to blame.
error reported_by(error e, std::int32_t rank);

}  // namespace shardmesh::detail
