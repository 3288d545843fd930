// SPDX-License-Identifier: Apache-2.0
// Not exported: the temporary name of an output, and the file or folder of files under it. The contents of the files
// are in `staged_files`.
module shardmesh.storage:staging_place;

import shardmesh.std;
import shardmesh.core;
import :presence;

namespace shardmesh {

struct staging_place {
  std::filesystem::path destination;  // the name that users know
  std::filesystem::path path;         // the temporary name
  std::filesystem::path beside;       // the folder of `path`
  bool is_directory = false;
  bool is_url = false;             // `destination` is a URL
  bool joined = false;             // another process made it: existing files are shared with others
  bool staged = false;             // something of ours exists at `path`
  bool durable = true;             // whether names must survive a power cut before entries are deleted
  std::vector<std::string> names;  // of the files
  presence ours;                   // marks `path` as being written, and identifies our own

  // A string, not a path: it is made for each file, and a folder may have a file for each tensor.
  std::string path_of(std::int32_t file) const;
  // Returns the name that users know: the temporary name is internal.
  std::string shown(const std::filesystem::path& internal) const;

  // Adds the folder that lacks space to an error of writing here. The files of a URL are written elsewhere first, so
  // the name in the error would not show which disk is full.
  error with_full_folder(error why) const;

  // Creates an empty file or folder at a new `path`, with the sign that it is being written.
  result<void> make();
  // Creates an empty file. In a shared folder, another process may have made the file already.
  result<void> make_file(const std::string& file) const;
  // Removes `path` if it is ours. Other processes may be adding to a shared folder, or committing it. The rename
  // settles who is first: afterwards they find nothing at its name. After their commit, the old checkpoint has that
  // name, and it is not ours to delete. A shared folder of a durable save stays if the names beside it cannot be
  // synced.
  void discard() const;
};

}  // namespace shardmesh
