// SPDX-License-Identifier: Apache-2.0
// plain objects as the archives that DCP stores, and back. Not here: other Python objects (object), their JSON.
export module shardmesh.torch_file:plain_object;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;

export namespace shardmesh::torch_file {

/// A complete torch.save archive of the object: what a DCP item holds. Sequences become lists, mappings dicts.
/// An opaque object's bytes are such an archive already and are taken as they are.
/// \errors errc::invalid_argument when the leaves do not fit the form; errc::unsupported for an opaque object whose
///         bytes are no archive, or that lies inside a container
/// Cost: O(nodes). No recursion.
result<std::vector<std::byte>> archive_of_object(const held_object& object);

/// The object in an archive, with an empty path: containers of plain values become a form and leaves, anything else
/// an opaque object that keeps the archive. A Python type that we have no form for (an OrderedDict, a set) is opaque.
/// \errors those of reading the archive. Cost: O(bytes). No recursion.
result<held_object> object_of_archive(std::span<const std::byte> archive);

/// Short text for messages: "3", "'adam'", "a container of 2 values", "argparse.Namespace".
std::string summary_of(const held_object& object);

}  // namespace shardmesh::torch_file
