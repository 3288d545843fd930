// SPDX-License-Identifier: Apache-2.0
// torch_chunk: from an opened torch item to what the readers of DCP and .pt hand out.
export module shardmesh.checkpoint:torch_chunk;

import shardmesh.std;
import shardmesh.core;
import :pickle;
import :read_limits;
import :reader;
import :storage;
import :torch_item;

namespace shardmesh {

/// Where the elements of the item's tensor number `tensor` are. Deflated storages become a decoding source.
/// errc::unsupported for a compression that ZIP readers do not know. `place` names the item in the file.
result<opened_chunk> open_torch_tensor(const torch_item& item, std::size_t tensor,
                                       std::shared_ptr<const byte_source> source, read_budget& budget,
                                       std::string_view place);

/// The value's kind, Python type and JSON, as `inspect` shows them.
result<object_value> describe_object(const torch_item& item, const pickle_value& value, const byte_source& source,
                                     read_budget& budget);

}  // namespace shardmesh
