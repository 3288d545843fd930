// SPDX-License-Identifier: Apache-2.0
// torch_chunk: from an opened torch item to what the readers of DCP and .pt hand out.
export module shardmesh.torch_file:chunk;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import shardmesh.catalog;
import :item;

export namespace shardmesh::torch_file {

/// Where the elements of the item's tensor number `tensor` are. Deflated storages become a decoding source.
/// errc::unsupported for a compression that ZIP readers do not know. `place` names the item in the file.
result<opened_chunk> open_tensor(const torch_file::item& item, std::size_t tensor,
                                 std::shared_ptr<const byte_source> source, read_budget& budget,
                                 std::string_view place);

/// The value's kind, Python type and JSON, as `inspect` shows them.
result<object_value> describe_object(const torch_file::item& item, const pickle::value& value,
                                     const byte_source& source, read_budget& budget);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// Where and how a tensor lies in the item's bytes; for a compressed storage, `begin` is that of the compressed bytes.
stored_tensor stored_form(const torch_file::item& item, std::size_t tensor);

}  // namespace shardmesh::torch_file
