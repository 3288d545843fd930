// SPDX-License-Identifier: Apache-2.0
// The binding of a distribution's slots to this rank's memory. The memory belongs to the caller.
export module shardmesh.transfer:binding;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// The permitted size of a slot's view.
enum class slot_room : std::uint8_t {
  exact,   // as large as the slot's fragments: for a layout, the rank's local shape
  larger,  // at least as large; memory beyond the fragments is not touched
};

/// This rank's memory of one side of a transfer: slot i is `slots[i]`. A slot holds its fragments at their
/// `local_offsets`. Its view has the side's dtype and any strides.
/// With `slot_room::exact`, the view must end where the last fragment does. A whole tensor bound by mistake for the
/// rank's part is thus rejected. A rank that holds nothing passes no slots; slots without fragments may be any views.
template <tensor_view_type View>
struct basic_tensor_binding {
  std::vector<View> slots;
  slot_room room = slot_room::exact;
  /// The reason why a tensor has no view, from its adapter's `check`. The run reports it on every rank.
  std::optional<error> problem{};
  /// Called after a run has written the slots; empty for sources.
  std::function<void()> written{};

  operator basic_tensor_binding<const_tensor_view>() const  // NOLINT: implicit, as for the views
    requires std::same_as<View, tensor_view>
  {
    return {{slots.begin(), slots.end()}, room, problem, {}};
  }
};

/// The binding of a destination.
using tensor_binding = basic_tensor_binding<tensor_view>;
/// The binding of a source, which is only read.
using const_tensor_binding = basic_tensor_binding<const_tensor_view>;

}  // namespace shardmesh
