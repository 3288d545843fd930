// SPDX-License-Identifier: Apache-2.0
// Rewrites pickles of protocols 0 to 2, which write bytes as text, with plain bytes. The result is read by `item`. Not
// exported.
module shardmesh.torch_file:spelled_pickle;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;

namespace shardmesh::torch_file {

// Rewrites the pickle `file` in protocol 4 in memory, so that tensors and arrays refer to plain bytes. Null when the
// file is not exactly one pickle of these protocols, and for a pickle of protocol 2 without bytes, which can be read as
// it is. Reads at most `limit_bytes`.
// Cost: twice the file's size in memory.
result<std::shared_ptr<const byte_source>> with_plain_bytes(const byte_source& file, std::int64_t limit_bytes);

}  // namespace shardmesh::torch_file
