// SPDX-License-Identifier: Apache-2.0
// Turns the keys of one dict into steps of paths. A key whose text only Python can compute is named after its value.
// The name then does not depend on the order of the dict's entries. Single keys in pickles and JSON are in
// `python_keys`. Not exported.
module shardmesh.torch_file:key_steps;

import shardmesh.std;
import shardmesh.pickle;
import shardmesh.tree;

namespace shardmesh::torch_file {

// Names the keys of one dict, in the dict's order.
class key_steps {
 public:
  explicit key_steps(const pickle::pairs& pairs);

  // Returns the next key as a step: text, an integer, or the pickled key. Empty for a key that cannot be kept: it
  // contains a tensor, is too long, or has the name of an earlier key (two instances with equal states).
  std::optional<path_key> next(const pickle::value& key);

  // Returns the name of the `i`-th key when it cannot be kept: its position, with "#" in front if other keys have a
  // known text.
  std::string position(std::size_t i) const;
  // Returns whether no key of the dict has a known text.
  bool are_all_unnamed() const { return are_all_unnamed_; }

 private:
  bool are_all_unnamed_;
  std::set<std::string> marks_;
};

}  // namespace shardmesh::torch_file
