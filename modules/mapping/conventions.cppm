// SPDX-License-Identifier: Apache-2.0
// The mappings that ship with shardmesh, by the names of the conventions that they relate.
export module shardmesh.mapping:conventions;

import shardmesh.std;
import shardmesh.core;
import :rules;

export namespace shardmesh {

/// A mapping that ships with shardmesh.
struct shipped_convention {
  std::string left, right;  // such as "hf.llama" and "meta.llama"
  std::string_view text;    // the TOML file
};

/// Returns the shipped mappings, sorted by their names. A mapping works in both directions.
std::vector<shipped_convention> shipped_conventions();

/// Finds the TOML text of a shipped mapping by its name, "hf.llama:meta.llama". The conventions may be in either order.
/// The text is null-terminated, and lives until the program ends.
/// \errors errc::invalid_argument for another name; the hint has the nearest name or all names, and for a chain of
///         mappings the names of its texts
result<std::string_view> shipped_mapping_text(std::string_view name);

/// Finds the mapping from one convention to another, given as "hf.llama:meta.llama": a shipped mapping, the inverse of
/// one, or the shortest chain of several, in the order in which they are applied.
/// \errors errc::invalid_argument for a name of another form, or for conventions that no mapping relates; the hint
///         suggests the nearest one, or lists the known ones
result<std::vector<mapping_rules>> find_mappings(std::string_view name);

}  // namespace shardmesh
