// SPDX-License-Identifier: Apache-2.0
// view_source: tensors in memory as an item_source. Not here: whose memory it is.
export module shardmesh.catalog:view_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import shardmesh.transfer;

export namespace shardmesh {

/// Views as items: a fragment's slot is the view's number.
struct view_source {
  std::vector<const_tensor_view> views;
  result<void> read(item_id item, const box& part, const tensor_view& to) {
    return copy_between(to, subview(views[static_cast<std::size_t>(item.slot)], part));
  }
  bool reads_in_order(item_id) { return false; }
};

}  // namespace shardmesh
