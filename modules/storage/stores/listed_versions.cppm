// SPDX-License-Identifier: Apache-2.0
// Not exported: the versions of objects in the lists of their folders. A checkpoint in a store is opened by its list
// and its description, and its data files are opened later: another writer may have replaced them meanwhile.
module shardmesh.storage:listed_versions;

import shardmesh.std;
import shardmesh.core;
import :answers;
import :store;

namespace shardmesh {

// Thread-safe.
class listed_versions {
 public:
  // Keeps the lists of this thread's `remembered_answers`, and compares the objects that were opened before with them.
  // errc::io when one has another version
  result<void> keep_lists();
  // Compares an opened object with the list of its folder. Its errors are those of `keep_lists` and of `store::list`:
  // if the versions differ, the folder is listed again, because a server may spell them differently in lists.
  result<void> check(const std::string& url, const std::string& version);

 private:
  struct folder {
    folder_list names;
    bool spells_alike = true;  // versions in lists are those of opened objects
  };
  struct difference {
    std::string folder, name, listed;
  };
  // Returns nothing if the object is as it was listed, or if nothing is known about it.
  std::optional<difference> difference_of(const std::string& url, const std::string& version);

  std::mutex lock_;  // is not held during a request
  std::map<std::string, folder> folders_;
  std::map<std::string, std::string> opened_;  // versions by URL, before `keep_lists`
  bool has_lists_ = false;
};

}  // namespace shardmesh
