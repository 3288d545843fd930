// SPDX-License-Identifier: Apache-2.0
// torch_chunk: from an opened torch item to what the readers of DCP and .pt hand out.
export module shardmesh.torch_file:chunk;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import shardmesh.catalog;
import :item;

export namespace shardmesh {

/// Where the elements of the item's tensor number `tensor` are. Deflated storages become a decoding source.
/// errc::unsupported for a compression that ZIP readers do not know. `place` names the item in the file.
result<opened_chunk> open_torch_tensor(const torch_item& item, std::size_t tensor,
                                       std::shared_ptr<const byte_source> source, read_budget& budget,
                                       std::string_view place);

/// The value's kind, Python type and JSON, as `inspect` shows them.
result<object_value> describe_object(const torch_item& item, const pickle_value& value, const byte_source& source,
                                     read_budget& budget);

}  // namespace shardmesh
