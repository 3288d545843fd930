// SPDX-License-Identifier: Apache-2.0
// Not exported: what a pickle says of a storage that it refers to. Not here: where its bytes are (item).
module shardmesh.torch_file:storage_reference;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// Key, dtype and size of the persistent id ("storage", class, key, location, count). In the old format storages of
// quantized tensors are known as well: one must know how long each storage is to find the next.
// errc::bad_format for other references and impossible sizes; errc::unsupported for classes that we do not know
result<storage> declared_storage(const pickle::value& reference, bool is_legacy);

}  // namespace shardmesh::torch_file
