// SPDX-License-Identifier: Apache-2.0
// Not exported: every checkpoint that lies in a folder, at any depth, opened; and the name of everything else there, so
// that nothing is passed over in silence. Not here: one folder's names (folder_survey), the parts seen as one
// (all_parts).
module shardmesh.checkpoint:gathered_parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.catalog;
import :parts;

namespace shardmesh {

// A part that was opened.
struct gathered_part {
  checkpoint_part part;
  std::string folder;  // of its files, relative to the whole: "", or "unet/"
  std::unique_ptr<checkpoint_reader> reader;
};

// What a folder holds. Names are relative to it.
struct gathered_parts {
  std::vector<gathered_part> parts;  // of unique names, ascending
  std::vector<error> problems;       // parts that are damaged, links that lead out of the folder
  std::vector<error> warnings;       // what may hold tensors and is not taken
  std::vector<std::string> notes;    // links to what is taken under another name
  std::string beside;                // a note that names what is of kinds that hold no tensors; empty: there is none
};

// One rule for every symbolic link: a target in the folder is taken once. So is one in the "blobs" of the Hugging Face
// cache, if the folder is a snapshot there. A target elsewhere is a problem if it may hold tensors, and is else named.
// errc::io when the folder itself cannot be listed.
// Cost: lists every folder below, opens every part.
result<gathered_parts> gather_parts(const std::filesystem::path& folder, const open_options& options);

}  // namespace shardmesh
