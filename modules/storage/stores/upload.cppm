// SPDX-License-Identifier: Apache-2.0
// Not exported: puts a written file or folder at a URL. The counterpart of `placing` for stores, which cannot rename:
// the description of a folder is uploaded last, so that readers find no checkpoint, or a whole one.
module shardmesh.storage:upload;

import shardmesh.std;
import shardmesh.core;
import :destination_snapshot;
import :staged_output;
import :store;

namespace shardmesh {

class upload {
 public:
  // Examines what is at `url`. errc::destination_exists when it may not be replaced; errc::unsupported when the scheme
  // has no store, or one that only reads, and errc::invalid_argument for a URL at which readers find nothing, before
  // any request; errc::io.
  static result<upload> look(std::string url, bool is_directory, const output_options& options);

  // Uploads `staging`, a file or a folder of files. After an error, objects that were uploaded are removed again. The
  // hint names those that could not be removed, and says if the previous checkpoint is gone. If it is unknown whether
  // the server has stored the description, or will store it, nothing is removed. An object of another writer is left
  // alone: what is removed has the version that was examined or uploaded.
  result<void> put(const std::filesystem::path& staging, std::vector<std::string>& notes);

 private:
  struct file {
    std::filesystem::path path;
    std::string name;  // empty for the single file
  };
  std::string url_of(const std::string& name) const { return name.empty() ? url_ : url_ + '/' + name; }
  result<void> look_at_file(const output_options& options);
  result<void> look_at_folder(const output_options& options);
  result<void> make_room(const std::vector<file>& files);
  // Checks that the folder still has the objects that will be replaced. errc::destination_exists
  result<void> check_unchanged() const;
  result<void> put_file(const file& one);
  result<void> remove_stale(const std::vector<file>& files, std::vector<std::string>& notes);
  // True if the server still has the object that it had when it was examined. False if the server does not answer.
  bool is_as_before(const std::string& name) const;
  error undone(const std::string& failed, error why);

  std::shared_ptr<const store> store_;
  std::string url_;  // without a slash at its end
  bool is_directory_ = false, has_made_room_ = false;
  std::int64_t memory_bytes_ = 0;                // see put_condition
  std::map<std::string, stored_object> before_;  // the objects that will be replaced
  struct written {
    std::string name, version;
  };
  std::vector<written> written_;  // objects that were not there before
};

// Returns whether readers recognise a checkpoint by the presence of this file of a folder.
bool is_description(std::string_view name);

}  // namespace shardmesh
