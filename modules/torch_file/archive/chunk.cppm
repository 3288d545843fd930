// SPDX-License-Identifier: Apache-2.0
// Turns an opened torch item into the chunks and object values that the DCP and .pt readers return.
export module shardmesh.torch_file:chunk;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.pickle;
import shardmesh.checkpoint_core;
import :item;

export namespace shardmesh::torch_file {

/// Opens the elements of the item's tensor with index `tensor`. Deflated storages are decoded through a source of their
/// own. `place` names the item in the file.
/// \errors errc::unsupported for a ZIP compression method that we cannot decode; errc::bad_format
result<opened_chunk> open_tensor(const torch_file::item& item, std::size_t tensor,
                                 std::shared_ptr<const byte_source> source, read_budget& budget,
                                 std::string_view place);

/// Returns the value's kind, Python type, and JSON, as `inspect` shows them.
result<object_value> describe_object(const torch_file::item& item, const pickle::value& value,
                                     const byte_source& source, read_budget& budget);

}  // namespace shardmesh::torch_file

namespace shardmesh::torch_file {

// Returns a tensor's place and layout in the item's bytes. For a compressed storage, `begin` is the start of the
// compressed bytes.
stored_tensor stored_form(const torch_file::item& item, std::size_t tensor);

}  // namespace shardmesh::torch_file
