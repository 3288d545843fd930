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
std::optional<tensor_view> piece_of(const tensor_view& slot, const extents& offsets, const extents& sizes);

class bound_memory {
 public:
  bound_memory(const transfer_plan& plan, owner_id rank);

  // Checks and keeps the bindings. Without a change since the last call nothing is checked or allocated.
  // Errors name the transfer by `name_of`.
  result<void> bind(const route& r, std::span<const tensor_binding> from, std::span<const tensor_binding> to,
                    function_ref<std::string(std::size_t)> name_of);

  const tensor_view& source(std::size_t transfer, std::int32_t slot) const {
    return sources_.views[sources_.first[transfer] + static_cast<std::size_t>(slot)];
  }
  const tensor_view& destination(std::size_t transfer, std::int32_t slot) const {
    return destinations_.views[destinations_.first[transfer] + static_cast<std::size_t>(slot)];
  }

 private:
  struct side {
    std::vector<slot_need> needs;    // by transfer, then slot
    std::vector<std::size_t> first;  // per transfer: its first slot in `views`
    std::vector<std::size_t> slots;  // per transfer: how many
    std::vector<tensor_view> views;
  };

  static side side_of(const transfer_plan& plan, owner_id rank, bool is_source);
  bool is_bound(const side& s, std::span<const tensor_binding> bindings) const;
  result<void> check(const side& s, bool is_source, std::span<const tensor_binding> bindings,
                     function_ref<std::string(std::size_t)> name_of) const;
  void keep(side& s, std::span<const tensor_binding> bindings);
  result<void> check_sharing(const route& r, function_ref<std::string(std::size_t)> name_of) const;
  bool stays_as_it_is(const route& r, const slot_need& destination) const;

  const transfer_plan plan_;
  owner_id rank_;
  side sources_, destinations_;
  bool bound_ = false;
};

// True when both views are the same elements at the same places.
bool is_same_memory(const tensor_view& a, const tensor_view& b);

}  // namespace shardmesh
