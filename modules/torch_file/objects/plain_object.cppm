// SPDX-License-Identifier: Apache-2.0
// Converts plain objects to the archives that DCP stores, and back. Other Python objects are in `object`, their JSON in
// `object_json`.
export module shardmesh.torch_file:plain_object;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;

export namespace shardmesh::torch_file {

/// Returns a complete torch.save archive of the object, as DCP items hold it. Sequences become lists, mappings dicts.
/// An opaque object's bytes are already such an archive and are returned unchanged.
/// \errors errc::invalid_argument when the leaves do not fit the form; errc::unsupported for an opaque object inside a
///   container, or one whose bytes are not an archive
/// Cost: O(nodes). No recursion.
result<std::vector<std::byte>> archive_of_object(const local_state_object& object);

/// Reads the object in an archive; its path is empty. Containers of plain values become a form and leaves. Any other
/// object, such as an OrderedDict or a set, is opaque and keeps the archive.
/// \errors those of reading the archive
/// Cost: O(bytes). No recursion.
result<local_state_object> object_of_archive(std::span<const std::byte> archive);

/// Returns a short text for messages: "3", "'adam'", "a container of 2 values", "argparse.Namespace".
std::string summary_of(const local_state_object& object);

}  // namespace shardmesh::torch_file
