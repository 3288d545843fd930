// SPDX-License-Identifier: Apache-2.0
// Not exported: the keys of one dict as steps of paths. A key that only Python can spell is named after its value, so
// that it has one name whatever the order of the dict's entries. Not here: single keys as pickles and JSON
// (python_keys).
module shardmesh.torch_file:key_steps;

import shardmesh.std;
import shardmesh.pickle;
import shardmesh.tree;

namespace shardmesh::torch_file {

// Names the keys of one dict, in its order.
class key_steps {
 public:
  explicit key_steps(const pickle::pairs& pairs);

  // The next key as a step: text, an integer, or the pickled key. Nothing for a key that cannot be kept: a tensor lies
  // in it, it is too long, or an earlier key has its name (two instances with equal states).
  std::optional<path_key> next(const pickle::value& key);

  // The name of the dict's `i`-th key when that cannot be kept: its position, behind "#" where other keys have a text.
  std::string position(std::size_t i) const;
  // No key of the dict has a text.
  bool are_all_unnamed() const { return are_all_unnamed_; }

 private:
  bool are_all_unnamed_;
  std::set<std::string> marks_;
};

// The key of a pickle whose str() needs Python. Its name is "#" and a digest: of its JSON, in which sets are sorted, or
// of the pickle where JSON does not hold all of it.
path_key marked_key(std::string_view pickled);

}  // namespace shardmesh::torch_file
