// SPDX-License-Identifier: Apache-2.0
// Not exported: one kind of transfer (equal distributions and dtypes), and the steps of one owner in it.
module shardmesh.transfer:expand;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :rank_plan;
import :step;

namespace shardmesh {

// One source box met by one destination box: all owners of the one hold it, all owners of the other want it.
enum class transfer_mode : std::uint8_t {
  values,  // the source has no terms
  terms,   // both have the same terms: each travels as a tensor of its own
  reduce,  // the source's terms are combined
};

// The type in which terms are combined: float32 for smaller floats.
dtype accumulation_type(dtype type);

struct transfer_class {
  distribution from, to;
  dtype from_type = dtype::undefined, to_type = dtype::undefined;
  transfer_mode mode = transfer_mode::values;
  std::int64_t reduce_grain_bytes = 1;

  bool one_space() const { return from.space() == to.space(); }
  // Bits of an element on the wire: of values, and of terms on their way to the reducer.
  std::int64_t wire_bits() const { return std::min(bits(from_type), bits(to_type)); }
  std::int64_t term_bits() const { return bits(from_type); }
  std::int64_t wire_bits_to(buffer_side side) const { return side == buffer_side::staging ? term_bits() : wire_bits(); }
  std::int64_t wire_bits_of(const step& s) const { return wire_bits_to(s.to.side); }
  bool travels(const step& s) const {
    return travels(s.kind, s.from.side, s.to.side, s.from.owner != s.to.owner, one_space());
  }
  static bool travels(step_kind kind, buffer_side from, buffer_side to, bool owners_differ, bool one_space) {
    if (kind == step_kind::scale || kind == step_kind::divide || kind == step_kind::fill) return false;
    if (from == buffer_side::destination) return false;  // between slots of one owner
    return owners_differ || (to != buffer_side::staging && !one_space);
  }
};

// Calls `emit` with every step in which `owner` of `space` takes part, in no particular order.
void expand(const transfer_class& c, owner_id owner, owner_space space, function_ref<void(const step&)> emit);

// The steps of one owner, sorted, with what it sends and receives.
// `expected`: how many there may be.
owner_steps steps_of(const transfer_class& c, owner_id owner, owner_space space, std::size_t expected = 0);

// The least number of bytes that any plan moves.
std::int64_t lower_bound_of(const transfer_class& c);

}  // namespace shardmesh
