// SPDX-License-Identifier: Apache-2.0
// Not exported: files of pickle.dump of protocols 0 to 2, which spell bytes as text, as the same pickle with plain
// bytes. Not here: what is read of them (item).
module shardmesh.torch_file:spelled_pickle;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::torch_file {

// The pickle that `file` is, written again by protocol 4 in memory, so that tensors and arrays have bytes to lie in.
// Null for what is no pickle of these protocols from its first byte to its last, and for one of protocol 2 without
// bytes: it is to be read as it is. At most `limit_bytes` are looked at.
// Cost: the memory of the file, twice.
result<std::shared_ptr<const byte_source>> with_plain_bytes(const byte_source& file, std::int64_t limit_bytes);

}  // namespace shardmesh::torch_file
