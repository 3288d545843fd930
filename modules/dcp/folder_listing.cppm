// SPDX-License-Identifier: Apache-2.0
// Not exported: lists a DCP folder, reads its metadata files, and finds signs of an interrupted save. The contents of
// the metadata are in `metadata`, the entries in `reader`.
module shardmesh.dcp:folder_listing;

import shardmesh.std;
import shardmesh.core;
import shardmesh.storage;
import shardmesh.checkpoint_core;
import :metadata;

namespace shardmesh::dcp {

// The files in the folder that matter to a reader.
struct folder_listing {
  bool has_metadata = false, has_temporary = false;
  std::map<std::int64_t, std::string> rank_metadata;  // rank -> "__N.metadata"
  std::set<std::string> odd_metadata;                 // "__*.metadata" without a rank that PyTorch would write
  std::set<std::string> rank_temporaries;             // "__N.metadata.tmp"
  std::set<std::string> items;                        // *.distcp
};

// Lists a folder. errc::io; errc::incomplete_save when it has no metadata.
result<folder_listing> list_folder(const std::filesystem::path& folder);

// Reads `.metadata`, or the metadata files of all ranks, whose total size is limited like that of one file. With
// `only_keys` in the options, descriptions of other keys may be skipped. `rank` and `keys_at_ranks` apply to the ranks'
// files.
result<metadata> read_metadata(const std::filesystem::path& folder, const folder_listing& listing,
                               const open_options& options, read_budget& budget);

// Adds problems and warnings to the description for files in the folder that contradict it.
void note_oddities(const std::filesystem::path& folder, const folder_listing& listing, metadata& description);

}  // namespace shardmesh::dcp
