// SPDX-License-Identifier: Apache-2.0
// view_source: tensors in memory as an item_source; element_source and write_items: what writers take elements from, so
// that those which lie in memory as they are to be written are not copied first. Not here: whose memory it is.
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

/// Any item_source, of which it is known whether it is tensors in memory. Refers to it: it must outlive this.
class element_source {
 public:
  element_source(any_item_source source) : items_(source) {}             // NOLINT: implicit, as a parameter type
  element_source(view_source& views) : items_(views), views_(&views) {}  // NOLINT
  template <item_source S>
    requires(!std::same_as<S, any_item_source> && !std::same_as<S, view_source> && !std::same_as<S, element_source>)
  element_source(S& source) : items_(source) {}  // NOLINT

  any_item_source items() const { return items_; }
  /// Null when the elements do not lie in memory.
  const view_source* views() const { return views_; }
  /// The elements lie in memory of the program that saves, which may change it during the save.
  bool may_change() const { return views_ != nullptr; }

 private:
  any_item_source items_;
  const view_source* views_ = nullptr;
};

/// `run_to_items`, but items whose elements lie in the host's memory row-major and in the dtype that is written, in one
/// run or several, reach the sink from there, at most 8 MiB at a time. The program may change that memory meanwhile:
/// a sink that sums what it writes copies each piece first (`stable_piece`). Threads share the items.
/// \errors those of `run_to_items`
result<void> write_items(std::span<const tensor_transfer> transfers, std::span<const std::string> keys,
                         element_source source, any_item_sink sink, const item_run_options& options = {});

}  // namespace shardmesh
