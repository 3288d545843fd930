// SPDX-License-Identifier: Apache-2.0
// Not exported: the nested paths of entries, from planner_data and from the attribute that shardmesh adds. Paths that
// are to be written are in `planner_paths`.
module shardmesh.dcp:entry_paths;

import shardmesh.std;
import shardmesh.core;
import shardmesh.tree;
import shardmesh.pickle;
import :parse_account;

namespace shardmesh::dcp {

class entry_paths {
 public:
  // `account` must outlive the result, and the graph of all values as well.
  explicit entry_paths(parse_account& account) : account_(account) {}

  // Takes planner_data, which has the paths of keys without one of their own.
  void plan(pickle::pairs planner) { planner_ = planner; }
  // Takes a path from the attribute that shardmesh adds.
  void add(std::string_view key, pickle::value steps);

  // Returns the path of a key: the key itself when no field has one. A path with steps that are neither text nor
  // numbers is a problem.
  path of(std::string_view key);

 private:
  struct given_path {
    pickle::value steps;
    std::string_view in;  // the field that holds it
  };

  std::optional<path_key> python_key_of(pickle::value step);
  std::optional<given_path> planned_path_of(std::string_view key);

  parse_account& account_;
  std::unordered_map<std::string_view, given_path> paths_;  // from the attribute that shardmesh adds
  pickle::pairs planner_;
  std::size_t next_planned_ = 0;
  std::unordered_map<std::string_view, pickle::value> planned_;
};

}  // namespace shardmesh::dcp
