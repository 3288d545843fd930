// SPDX-License-Identifier: Apache-2.0
// Not exported: the search of a folder for checkpoints. Bodies: `gathered_parts.cpp` opens the checkpoints,
// `gathered_links.cpp` follows links, and `gathered_names.cpp` names all entries.
module shardmesh.checkpoint:part_gatherer;

import shardmesh.std;
import shardmesh.core;
import shardmesh.checkpoint_core;
import :folder_parts;
import :gathered_parts;

namespace shardmesh {

class part_gatherer {
 public:
  part_gatherer(std::filesystem::path top, const open_options& options);

  result<gathered_parts> run();

 private:
  struct folder_contents {
    std::vector<const checkpoint_reader*> models;  // models made of files in it
    std::vector<checkpoint_part> own;              // all checkpoints made of files in it
  };

  // "a/b/" of "a/b/c.pt"
  static std::string folder_of(const std::string& name) { return name.substr(0, name.rfind('/') + 1); }
  bool is_claimed(const std::string& name) const { return claimed_.contains(name); }
  // True when files of a part lie below the folder.
  bool holds_claimed(const std::string& folder) const;

  // `folder` is "" or ends with "/".
  std::filesystem::path path_of(const std::string& folder) const;
  result<void> look_in(const std::string& folder, int depth);
  void look_below(const std::string& folder, int depth);
  static bool is_name_of_own(const folder_contents& contents, const std::string& name);

  // Takes the checkpoints that are made of files in the folder itself.
  result<void> take_own(const std::string& folder, folder_contents& contents);
  void take_part(const std::string& folder, const checkpoint_part& part, folder_contents& contents);

  // The path to which links lead from `name`, relative to the folder; `name` itself if they lead outside.
  std::string target_of(const std::string& name) const;
  void claim(const std::string& name);
  bool is_visited(const std::string& name) const { return visited_.contains((real_top_ / name).string()); }

  // Refuses links out of the folder among the files that a part would be read from.
  bool refuse_links(const std::string& folder, const checkpoint_part& part);
  void refuse_link(const std::string& name);

  // An unsupported format is a warning, damage is a problem.
  void refuse(error why);
  void take_file(const std::string& folder, const std::string& file, const folder_contents& contents);

  // True for variants and parts of a model, and for its copies in torch.save files.
  static bool is_name_of_copy(const std::string& file);
  static bool shares_tensors(const checkpoint_reader& file, const std::vector<const checkpoint_reader*>& models);
  void note_copy(const std::string& name, const std::string& file, const std::vector<const checkpoint_reader*>& models);

  // Runs last, so that the target of links is taken once, and under its own name if it has one in the folder.
  void follow_links();
  void follow(const std::string& name);
  void broken(const std::string& name);

  void finish_names();
  void name_the_rest();

  const std::filesystem::path top_;
  std::filesystem::path real_top_;
  const open_options& options_;
  gathered_parts found_;
  std::set<std::string> claimed_;   // files that belong to parts
  std::set<std::string> visited_;   // canonical paths: folders that were searched, files that are parts
  std::set<std::string> nameless_;  // files recognised as checkpoints only by their first bytes; links may lead to them
  std::vector<std::string> links_, beside_, unknown_, copies_, followed_;
};

}  // namespace shardmesh
