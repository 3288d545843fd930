// SPDX-License-Identifier: Apache-2.0
// Metadata of shards as bytes that ranks exchange. For this room and those above it, not for users.
export module shardmesh.sharding:metadata_wire;

import shardmesh.std;
import shardmesh.transfer;
import :metadata;

export namespace shardmesh::detail {

void write(wire_writer& out, const tensor_properties& value);
void write(wire_writer& out, const shard_metadata& value);
tensor_properties read_properties(wire_reader& in);
shard_metadata read_shard(wire_reader& in);

}  // namespace shardmesh::detail
