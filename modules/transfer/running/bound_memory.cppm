// SPDX-License-Identifier: Apache-2.0
// Not exported: the bindings of a run, checked against what a rank's fragments need.
module shardmesh.transfer:bound_memory;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :binding;
import :mirrors;
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
  // `memory`: in which the run works; slots that lie elsewhere are mirrored there.
  bound_memory(const transfer_plan& plan, owner_id rank, device memory);

  // Checks and keeps the bindings. Without a change since the last call nothing is checked or allocated.
  // Errors name the transfer by `name_of`.
  result<void> bind(const route& r, std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                    function_ref<std::string(std::size_t)> name_of);

  // The slots as the run sees them.
  std::span<const const_tensor_view> sources() const { return sources_.views; }
  std::span<const tensor_view> destinations() const { return destinations_.views; }
  std::size_t source_index(std::size_t transfer, std::int32_t slot) const {
    return sources_.first[transfer] + static_cast<std::size_t>(slot);
  }
  std::size_t destination_index(std::size_t transfer, std::int32_t slot) const {
    return destinations_.first[transfer] + static_cast<std::size_t>(slot);
  }
  const const_tensor_view& source(std::size_t transfer, std::int32_t slot) const {
    return sources_.views[source_index(transfer, slot)];
  }
  const tensor_view& destination(std::size_t transfer, std::int32_t slot) const {
    return destinations_.views[destination_index(transfer, slot)];
  }

  // Copies of slots that lie in another memory.
  const slot_mirrors& mirrors() const { return mirrors_; }
  // Counts the bindings whose views had other dtypes, sizes or strides than those before, wherever they lay.
  std::int64_t shapes() const { return shapes_; }

 private:
  template <tensor_view_type View>
  struct side {
    static constexpr bool is_source = std::same_as<View, const_tensor_view>;
    std::vector<slot_need> needs;    // by transfer, then slot
    std::vector<std::size_t> first;  // per transfer: its first slot in `views`
    std::vector<std::size_t> slots;  // per transfer: how many
    std::vector<View> bound;         // as they were given
    std::vector<View> views;         // as the run sees them: mirrors of those that lie elsewhere
  };

  template <tensor_view_type View>
  static side<View> side_of(const transfer_plan& plan, owner_id rank);
  template <tensor_view_type View>
  static bool is_bound(const side<View>& s, std::span<const basic_tensor_binding<View>> bindings);
  template <tensor_view_type View>
  result<void> check(const side<View>& s, std::span<const basic_tensor_binding<View>> bindings,
                     function_ref<std::string(std::size_t)> name_of) const;
  template <tensor_view_type View>
  result<void> keep(side<View>& s, std::span<const basic_tensor_binding<View>> bindings);
  bool is_written_whole(const slot_need& need) const;
  const_tensor_view needed_part(const slot_need& need, bool is_source) const;
  result<void> check_sharing(const route& r, function_ref<std::string(std::size_t)> name_of) const;
  bool stays_as_it_is(const route& r, const slot_need& destination) const;

  const transfer_plan plan_;
  owner_id rank_;
  device memory_;
  slot_mirrors mirrors_;
  std::int64_t shapes_ = 0;
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
