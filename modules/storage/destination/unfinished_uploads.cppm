// SPDX-License-Identifier: Apache-2.0
// Not exported: unfinished uploads in parts, which are the leftovers of killed runs under URLs.
module shardmesh.storage:unfinished_uploads;

import shardmesh.std;
import shardmesh.core;

namespace shardmesh {

struct left_upload {
  std::string path;  // the object's URL with "?uploadId=ID"
  std::int64_t size_bytes = 0;
  // Whether it was begun a day ago. No lock tells whether the writer of a later one lives.
  bool is_dead = false;
};

// Finds those of the object at `url`, and of the objects directly in that folder.
result<std::vector<left_upload>> find_unfinished_uploads(const std::string& url);

// Ends one, after judging it again, and removes its parts from the server.
// errc::destination_exists for one that was begun less than a day ago, or at an unknown time
result<void> remove_unfinished_upload(const std::string& path);

}  // namespace shardmesh
