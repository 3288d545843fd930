// SPDX-License-Identifier: Apache-2.0
// Not exported: how what was written takes its place at a destination: without harm to anything that was not looked at
// before. Not here: making and writing it (staged_output).
module shardmesh.storage:placing;

import shardmesh.std;
import shardmesh.core;
import :presence;
import :seen_destination;
import :staged_output;

namespace shardmesh {

class placing {
 public:
  // Looks at what stands at `destination`, an absolute path. errc::destination_exists when that may not be replaced,
  // errc::invalid_argument when its folder does not exist, errc::io.
  static result<placing> look(std::filesystem::path destination, bool is_directory, const output_options& options);

  // One rename or one exchange of names. errc::destination_exists when the destination is not what was looked at: it is
  // left alone, and `staging` is as it was. errc::io.
  result<void> put(const std::filesystem::path& staging);
  // After `put`: `staging` is the name of what was replaced, to be removed or taken back.
  bool has_old() const { return has_old_; }
  // `staging` has a name that is not a temporary one and is not ours any more.
  bool is_kept() const { return is_kept_; }
  // Deletes what was looked at. What somebody added to the old folder since is kept, which the answer says.
  std::optional<std::string> remove_old(const std::filesystem::path& staging);
  // After `put`: makes the destination what it was, and gives `ours` its name `staging` again. When that cannot be done
  // (another process changed the destination, the system refuses) all stays as it is, and the answer says so in words
  // for the user, naming where the old one is.
  std::optional<std::string> take_back(const std::filesystem::path& staging, const presence& ours);

 private:
  result<void> put_new(const std::filesystem::path& staging);
  result<void> replace(const std::filesystem::path& staging);
  bool take_back_new(const std::filesystem::path& staging, const presence& ours) const;
  bool take_back_old(const std::filesystem::path& staging, const presence& ours) const;
  std::filesystem::path keep(const std::filesystem::path& staging);

  std::filesystem::path destination_;
  bool is_directory_ = false, has_old_ = false, is_kept_ = false;
  bool has_overwritten_ = false;                // the old file is gone: the file system cannot exchange names
  std::optional<std::uint32_t> filled_folder_;  // rights of an empty folder that was there
  seen_destination before_;
  presence old_;  // of what is being replaced: it is not to be taken for a leftover
};

}  // namespace shardmesh
