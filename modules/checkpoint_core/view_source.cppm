// SPDX-License-Identifier: Apache-2.0
// Tensors in memory as an item_source (`view_source`), and the element source of writers (`element_source`,
// `write_items`). Elements that lie in memory in the form to be written are not copied first. The caller owns the
// memory.
export module shardmesh.checkpoint_core:view_source;

import shardmesh.std;
import shardmesh.core;
import shardmesh.kernels;
import shardmesh.transfer;

export namespace shardmesh {

/// Tensor views as items. A fragment's slot is the view's number.
struct view_source {
  std::vector<const_tensor_view> views;
  result<void> read(item_id item, const box& part, const tensor_view& to) {
    return copy_between(to, subview(views[static_cast<std::size_t>(item.slot)], part));
  }
  bool reads_in_order(item_id) { return false; }
};

/// Any item_source. It knows when its elements are tensors in memory. It refers to the source, which must outlive it.
class element_source {
 public:
  element_source(any_item_source source) : items_(source) {}             // NOLINT: implicit, as a parameter type
  element_source(view_source& views) : items_(views), views_(&views) {}  // NOLINT
  template <item_source S>
    requires(!std::same_as<S, any_item_source> && !std::same_as<S, view_source> && !std::same_as<S, element_source>)
  element_source(S& source) : items_(source) {}  // NOLINT

  any_item_source items() const { return items_; }
  /// Returns null when the elements do not lie in memory.
  const view_source* views() const { return views_; }
  /// Returns whether the elements lie in memory of the program that saves, which may change it during the save.
  bool may_change() const { return views_ != nullptr; }

 private:
  any_item_source items_;
  const view_source* views_ = nullptr;
};

/// Does the same as `run_to_items`, but avoids copies. An item reaches the sink straight from host memory when its
/// elements lie there row-major, in the dtype to be written, in one run or several. The sink gets at most 8 MiB at a
/// time. The program may change that memory meanwhile: a sink that sums its input copies each piece first
/// (`stable_piece`). Threads share the items.
/// \errors those of `run_to_items`
result<void> write_items(std::span<const tensor_transfer> transfers, std::span<const std::string> keys,
                         element_source source, any_item_sink sink, const item_run_options& options = {});

}  // namespace shardmesh
