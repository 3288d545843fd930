// SPDX-License-Identifier: Apache-2.0
// The bindings of a run, checked against the fragments of a rank. Exports nothing.
module shardmesh.transfer:bound_memory;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :binding;
import :staging_copies;
import :plan;
import :route;
import :step;

namespace shardmesh {

// The part of a slot's view that the slot's fragments need.
struct slot_need {
  std::uint32_t transfer = 0;
  std::int32_t slot = 0;
  box region;  // hull of the fragments in the slot's own index space
};

// The part of a slot at `offsets`, for any dtype. Returns nothing for a sub-byte piece that begins inside a byte.
template <tensor_view_type View>
std::optional<View> piece_of(const View& slot, const extents& offsets, const extents& sizes) {
  std::int64_t first_bit = 0;
  for (std::size_t d = 0; d < offsets.rank(); ++d) first_bit += offsets[d] * slot.strides[d] * bits(slot.type);
  if (first_bit % 8 != 0) return std::nullopt;
  return View{slot.data + first_bit / 8, slot.type, slot.where, sizes, slot.strides};
}

class bound_memory {
 public:
  // `memory` is the run's memory; slots that lie elsewhere get copies there.
  bound_memory(const transfer_plan& plan, owner_id rank, device memory);

  // Checks and keeps the bindings. If they are the same as in the last call, this neither checks nor allocates. Errors
  // name a transfer by `name_of`.
  result<void> bind(const route& r, std::span<const const_tensor_binding> from, std::span<const tensor_binding> to,
                    function_ref<std::string(std::size_t)> name_of);

  // The slots as the run uses them.
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

  // Copies of the slots that lie in another memory.
  const staging_copies& copies() const { return copies_; }
  // Counts the changes of any view's dtype, sizes, or strides from one binding to the next. Addresses do not count.
  std::int64_t shapes() const { return shapes_; }

 private:
  template <tensor_view_type View>
  struct side {
    static constexpr bool is_source = std::same_as<View, const_tensor_view>;
    std::vector<slot_need> needs;    // by transfer, then slot
    std::vector<std::size_t> first;  // index in `views` of each transfer's first slot
    std::vector<std::size_t> slots;  // number of slots of each transfer
    std::vector<View> bound;         // as the caller bound them
    std::vector<View> views;         // as the run uses them: copies of those that lie elsewhere
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
  staging_copies copies_;
  std::int64_t shapes_ = 0;
  side<const_tensor_view> sources_;
  side<tensor_view> destinations_;
  bool bound_ = false;
};

// Returns whether both views have the same elements at the same places.
template <tensor_view_type A, tensor_view_type B>
bool is_same_memory(const A& a, const B& b) {
  if (a.data != b.data || a.type != b.type || a.sizes != b.sizes) return false;
  for (std::size_t d = 0; d < a.sizes.rank(); ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

}  // namespace shardmesh
