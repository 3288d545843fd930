// SPDX-License-Identifier: Apache-2.0
// Not exported: moves a written file or folder into place at a destination, without harm to anything that was not
// examined before. Creating and writing it is in `staged_output`.
module shardmesh.storage:placing;

import shardmesh.std;
import shardmesh.core;
import :presence;
import :destination_snapshot;
import :staged_output;

namespace shardmesh {

class placing {
 public:
  // Examines what is at `destination`, an absolute path. errc::destination_exists when it may not be replaced,
  // errc::invalid_argument when its folder does not exist, errc::io.
  static result<placing> look(std::filesystem::path destination, bool is_directory, const output_options& options);

  // Moves `staging` into place by one rename or one exchange of names. errc::destination_exists when the destination
  // changed since `look`: it is left alone, and `staging` is as it was. errc::io.
  result<void> put(const std::filesystem::path& staging);
  // After `put`: `staging` is the name of the replaced file or folder, to be removed or restored.
  bool has_old() const { return has_old_; }
  // True when the contents of `staging` are no longer ours. They were moved to a name that is not temporary, if
  // possible.
  bool is_kept() const { return is_kept_; }
  // True when a failed `put` had exchanged the names, and exchanged them back.
  bool was_in_place() const { return was_in_place_; }
  // Deletes what `look` examined. Entries that another program added to the old folder since then are kept, and the
  // returned note says so.
  std::optional<std::string> remove_old(const std::filesystem::path& staging);
  // After `put`: restores the destination, and gives `ours` its name `staging` again. When that is impossible (another
  // process changed the destination, or the system refuses), everything stays as it is. The returned note then says so,
  // and names the location of the old one.
  std::optional<std::string> take_back(const std::filesystem::path& staging, const presence& ours);

 private:
  result<void> put_new(const std::filesystem::path& staging);
  result<void> replace(const std::filesystem::path& staging);
  bool take_back_new(const std::filesystem::path& staging, const presence& ours) const;
  bool take_back_old(const std::filesystem::path& staging, const presence& ours) const;
  std::filesystem::path keep(const std::filesystem::path& staging);

  std::filesystem::path destination_;
  bool is_directory_ = false, has_old_ = false, is_kept_ = false, was_in_place_ = false;
  bool has_overwritten_ = false;                // the old file is gone: the file system cannot exchange names
  std::optional<std::uint32_t> filled_folder_;  // mode of an empty folder that was there
  destination_snapshot before_;
  presence old_;  // locks what is being replaced, so that it is not taken for a leftover
};

}  // namespace shardmesh
