// SPDX-License-Identifier: Apache-2.0
// tensor_binding, const_tensor_binding: where the slots of a distribution are in this rank's memory. Not here: who owns
// that memory.
export module shardmesh.transfer:binding;

import shardmesh.std;
import shardmesh.core;

export namespace shardmesh {

/// How large the views of slots are.
enum class slot_room : std::uint8_t {
  exact,   // as large as the slot's fragments: of a layout, the rank's local shape
  larger,  // that or larger: memory with room for more, of which nothing else is touched
};

/// The memory of this rank's slots of one transfer's side: slot i is `slots[i]`. A slot holds its fragments at their
/// `local_offsets`; its view has the side's dtype, any strides, and ends where the last fragment does, unless `room`
/// says otherwise: a whole tensor that was meant to be the rank's part is then refused. A rank that holds nothing gives
/// no slots; slots without fragments may be any views.
template <tensor_view_type View>
struct basic_tensor_binding {
  std::vector<View> slots;
  slot_room room = slot_room::exact;
  /// Why a tensor has no view (its adapter's `check`): the run says it, on every rank.
  std::optional<error> problem{};
  /// Called when a run has written the slots; empty for sources.
  std::function<void()> written{};

  operator basic_tensor_binding<const_tensor_view>() const  // NOLINT: implicit, as of the views
    requires std::same_as<View, tensor_view>
  {
    return {{slots.begin(), slots.end()}, room, problem, {}};
  }
};

/// Of a destination.
using tensor_binding = basic_tensor_binding<tensor_view>;
/// Of a source: what is there is only read.
using const_tensor_binding = basic_tensor_binding<const_tensor_view>;

}  // namespace shardmesh
