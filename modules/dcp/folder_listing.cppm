// SPDX-License-Identifier: Apache-2.0
// Not exported: what lies in a DCP folder: its metadata files, read, and signs of a save that was interrupted. Not
// here: what the metadata says (metadata), the entries (reader).
module shardmesh.dcp:folder_listing;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.catalog;
import :metadata;

namespace shardmesh::dcp {

// What lies in the folder.
struct folder_listing {
  bool has_metadata = false, has_temporary = false;
  std::map<std::int64_t, std::string> rank_metadata;  // rank -> "__N.metadata"
  std::set<std::string> items;                        // *.distcp
};

// errc::io; errc::incomplete_save where there is no metadata.
result<folder_listing> list_folder(const std::filesystem::path& folder);

// `.metadata`, or those of the ranks together, which stay below the limit of one. With `only_keys` in the options,
// descriptions of other keys may be passed over; `rank` and `keys_at_ranks` are for those of the ranks.
result<metadata> read_metadata(const std::filesystem::path& folder, const folder_listing& listing,
                               const open_options& options, read_budget& budget);

// Adds to the description's problems and warnings what the folder has beside what it describes.
void note_oddities(const std::filesystem::path& folder, const folder_listing& listing, metadata& description);

}  // namespace shardmesh::dcp
