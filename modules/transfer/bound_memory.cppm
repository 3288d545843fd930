// SPDX-License-Identifier: Apache-2.0
// Not exported: the bindings of a run, checked against what a rank's fragments need.
module shardmesh.transfer:bound_memory;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :binding;
import :plan;
import :route;
import :step;

namespace shardmesh {

// What the fragments of one slot need of its view.
struct slot_need {
  std::uint32_t transfer = 0;
  std::int32_t slot = 0;
  box region;  // of the slot's own index space: the hull of its fragments
};

// The part of a slot at these offsets, of any dtype: sub-byte pieces that begin inside a byte give nothing.
template <tensor_view_type View>
std::optional<View> piece_of(const View& slot, const extents& offsets, const extents& sizes) {
  std::int64_t first_bit = 0;
  for (std::size_t d = 0; d < offsets.rank(); ++d) first_bit += offsets[d] * slot.strides[d] * bits(slot.type);
  if (first_bit % 8 != 0) return std::nullopt;
  return View{slot.data + first_bit / 8, slot.type, slot.where, sizes, slot.strides};
}

class bound_memory {
 public:
  bound_memory(const transfer_plan& plan, owner_id rank);

  // Checks and keeps the bindings. Without a change since the last call nothing is checked or allocated.
  // Errors name the transfer by `name_of`.
  result<void> bind(const route& r, std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                    function_ref<std::string(std::size_t)> name_of);

  const const_tensor_view& source(std::size_t transfer, std::int32_t slot) const {
    return sources_.views[sources_.first[transfer] + static_cast<std::size_t>(slot)];
  }
  const tensor_view& destination(std::size_t transfer, std::int32_t slot) const {
    return destinations_.views[destinations_.first[transfer] + static_cast<std::size_t>(slot)];
  }

 private:
  template <tensor_view_type View>
  struct side {
    static constexpr bool is_source = std::same_as<View, const_tensor_view>;
    std::vector<slot_need> needs;    // by transfer, then slot
    std::vector<std::size_t> first;  // per transfer: its first slot in `views`
    std::vector<std::size_t> slots;  // per transfer: how many
    std::vector<View> views;
  };

  template <tensor_view_type View>
  static side<View> side_of(const transfer_plan& plan, owner_id rank);
  template <tensor_view_type View>
  static bool is_bound(const side<View>& s, std::span<const basic_tensor_binding<View>> bindings);
  template <tensor_view_type View>
  result<void> check(const side<View>& s, std::span<const basic_tensor_binding<View>> bindings,
                     function_ref<std::string(std::size_t)> name_of) const;
  template <tensor_view_type View>
  static void keep(side<View>& s, std::span<const basic_tensor_binding<View>> bindings);
  const_tensor_view needed_part(const slot_need& need, bool is_source) const;
  result<void> check_sharing(const route& r, function_ref<std::string(std::size_t)> name_of) const;
  bool stays_as_it_is(const route& r, const slot_need& destination) const;

  const transfer_plan plan_;
  owner_id rank_;
  side<const_tensor_view> sources_;
  side<tensor_view> destinations_;
  bool bound_ = false;
};

// True when both views are the same elements at the same places.
template <tensor_view_type A, tensor_view_type B>
bool is_same_memory(const A& a, const B& b) {
  if (a.data != b.data || a.type != b.type || a.sizes != b.sizes) return false;
  for (std::size_t d = 0; d < a.sizes.rank(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

}  // namespace shardmesh
