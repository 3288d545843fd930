// SPDX-License-Identifier: Apache-2.0
// DCP metadata: from the pickle in `.metadata` to a catalog, and back. Not here: items, folders (dcp_reader, save_dcp).
export module shardmesh.checkpoint:dcp_metadata;

import shardmesh.std;
import shardmesh.core;
import :catalog;
import :output;
import :pickle;

export namespace shardmesh {

/// What the metadata holds beside tensors, objects and places: carried through a rewrite unchanged.
struct dcp_extras {
  std::shared_ptr<const pickle_graph> graph;  // owns the values below; null: none
  std::string version;                        // empty: the file has none
  bool has_version = true;
  bool has_planner_data = true;                                  // false: written without flattening
  std::vector<std::pair<std::string, pickle_value>> attributes;  // storage_meta, mcore_data, ...
};

struct dcp_metadata {
  catalog contents;
  dcp_extras extras;
  std::vector<error> problems;  // entries that cannot be used; the rest can
  std::vector<error> warnings;  // what is odd without making an entry unreadable
};

/// Reads the pickle of a `.metadata` or `__N.metadata` file, of any PyTorch since 1.13. Unknown classes and attributes
/// are kept as inert records. `file` is for messages.
/// \errors errc::bad_pickle; errc::bad_format when the root is no Metadata. Defects of single entries (a negative size,
/// a
///         chunk out of bounds, a path that leaves the folder) are problems, each naming file and key.
/// Cost: O(bytes). Source: torch/distributed/checkpoint/metadata.py, filesystem.py
result<dcp_metadata> parse_dcp_metadata(std::vector<std::byte> bytes, std::string_view file);

/// One description from the `__N.metadata` of every rank (at least one): chunks that several hold are one. Ranks that
/// describe a tensor differently are problems. Cost: O(n log n) in chunks.
dcp_metadata merge_dcp_metadata(std::vector<dcp_metadata> parts);

/// Where a written entry lies: file, offset and length of its item.
struct dcp_place {
  std::string file;
  std::int64_t offset = 0, length = 0;
};

/// The pickle of a `.metadata` for these entries. `places`: one per chunk of every tensor, in order; then one per
/// object. Loads in PyTorch 2.13 as its own Metadata object.
std::vector<std::byte> format_dcp_metadata(std::span<const output_tensor> tensors,
                                           std::span<const output_object> objects, std::span<const dcp_place> places,
                                           const dcp_extras& extras);

}  // namespace shardmesh
