// SPDX-License-Identifier: Apache-2.0
// Not exported: the lists that one rank saved. Elements that only other ranks have in them are not values of that rank.
// The consequences are in `merge`.
module shardmesh.dcp:own_lists;

import shardmesh.std;
import shardmesh.tree;
import shardmesh.checkpoint_core;

namespace shardmesh::dcp {

// The containers and leaves of one rank's description.
class own_lists {
 public:
  own_lists() = default;
  explicit own_lists(const catalog& own);

  // Returns whether an entry of another rank contradicts the rank's own state: it is an element that the rank's list
  // lacks, it lies inside a value that is a leaf of the rank, or it is a leaf where the rank has a container.
  // Precondition: the rank itself has no entry of this path.
  bool exclude(const path& where) const;

 private:
  std::set<path> leaves_, containers_, lists_, elements_;  // `elements_`: the paths of the lists' elements
};

}  // namespace shardmesh::dcp
