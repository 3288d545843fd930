// SPDX-License-Identifier: Apache-2.0
// Not exported: opens every checkpoint in a folder, at any depth, and names everything else there, so that nothing is
// left out silently. One folder's names are in folder_survey; the parts as one checkpoint are in all_parts.
module shardmesh.checkpoint:gathered_parts;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :folder_parts;

namespace shardmesh {

// A part that was opened.
struct gathered_part {
  checkpoint_part part;
  std::string folder;  // of its files, relative to the top folder: "" or "unet/"
  std::unique_ptr<checkpoint_reader> reader;
};

// The contents of a folder. Names are relative to it.
struct gathered_parts {
  std::vector<gathered_part> parts;  // with unique names, ascending
  std::vector<error> problems;       // damaged parts, folders that cannot be searched, links to tensors elsewhere
  std::vector<error> warnings;       // entries that are skipped: unsupported, unknown, copies, and other links
  std::vector<std::string> notes;    // links to files and folders that are read under their own names
  std::string beside;                // a note about skipped files of kinds that hold no tensors; empty: no such file
};

// Opens everything in a folder. Follows symbolic links to targets in the folder, and into the "blobs" of the Hugging
// Face cache if the folder is a snapshot there; each target is taken once. A link to any other place is a problem if
// its target may hold tensors; otherwise a warning names it. errc::io when the folder itself cannot be listed.
// Cost: lists every folder below, opens every part.
result<gathered_parts> gather_parts(const std::filesystem::path& folder, const open_options& options);

}  // namespace shardmesh
