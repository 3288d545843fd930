// SPDX-License-Identifier: Apache-2.0
// Decodes a pickle's reference to a storage. `item_reader` locates the bytes. Not exported.
module shardmesh.torch_file:storage_reference;

import shardmesh.std;
import shardmesh.core;
import shardmesh.pickle;
import :item;

namespace shardmesh::torch_file {

// Decodes key, dtype, and size from the persistent id ("storage", class, key, location, count). With `is_legacy`,
// storages of quantized tensors are accepted as well: in the old format, finding a storage requires the length of every
// storage before it.
// \errors errc::bad_format for other references and impossible sizes; errc::unsupported for unknown classes
result<storage> declared_storage(const pickle::value& reference, bool is_legacy);

}  // namespace shardmesh::torch_file
