// SPDX-License-Identifier: Apache-2.0
// A class of equal transfers: their distributions and dtypes. The transfer rules work on it at run time and, over a
// static distribution, at compile time. Exports nothing.
export module shardmesh.transfer:transfer_class;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :step;

namespace shardmesh {

// The treatment of the source's terms.
enum class transfer_mode : std::uint8_t {
  values,  // the source has no terms
  terms,   // both sides have the same terms: each travels as a tensor of its own
  reduce,  // the source's terms are combined
};

template <class From, class To>
constexpr transfer_mode mode_between(const From& from, const To& to) {
  if (from.reduction() == reduce_op::none) return transfer_mode::values;
  const bool same = from.reduction() == to.reduction() && from.terms() == to.terms() && from.divisor() == to.divisor();
  return same ? transfer_mode::terms : transfer_mode::reduce;
}

// The type in which terms are combined: float32 for smaller floats, complex64 for complex32.
constexpr dtype accumulation_type(dtype type) {
  if (kind(type) == dtype_kind::floating && bits(type) < 32) return dtype::float32;
  if (type == dtype::complex32) return dtype::complex64;
  return type;
}

// Returns whether a fragment of sub-byte elements, and each of its rows, begins and ends at whole bytes, in the tensor
// and in its slot. Rows run along the last dimension. If rows are whole bytes, outer dimensions may be cut freely.
constexpr bool is_byte_aligned(const box& where, const extents& local_offsets, const extents& shape, dtype type) {
  const std::int64_t unit = 8 / std::gcd(std::int64_t{bits(type)}, std::int64_t{8});
  if (where.is_empty()) return true;
  const std::size_t rank = shape.rank();
  if (rank > 0 && where.offsets[rank - 1] % unit == 0 && where.sizes[rank - 1] % unit == 0 &&
      local_offsets[rank - 1] % unit == 0)
    return true;
  return where == box::whole(shape) && where.volume() % unit == 0;
}

// Returns whether the size of a tensor fits in 64 bits, counted in bits and with at least 64 bits per element.
constexpr bool has_countable_bytes(const extents& shape, dtype from, dtype to) {
  const std::int64_t widest = std::max({bits(from), bits(to), 64});
  return checked_multiply(box::whole(shape).volume(), widest).has_value();
}

// `From` and `To` have the interface of `distribution`.
template <class From, class To = From>
struct basic_transfer_class {
  From from;
  To to;
  dtype from_type = dtype::undefined, to_type = dtype::undefined;
  transfer_mode mode = transfer_mode::values;
  std::int64_t reduce_grain_bytes = 1;

  constexpr bool one_space() const { return from.space() == to.space(); }
  // Bits of an element on the wire, for values and for terms on their way to the reducer.
  constexpr std::int64_t wire_bits() const { return std::min(bits(from_type), bits(to_type)); }
  constexpr std::int64_t term_bits() const { return bits(from_type); }
  constexpr std::int64_t wire_bits_to(buffer_side side) const {
    return side == buffer_side::staging ? term_bits() : wire_bits();
  }
  constexpr std::int64_t wire_bits_of(const step& s) const { return wire_bits_to(s.to.side); }
  constexpr bool travels(const step& s) const {
    return travels(s.kind, s.from.side, s.to.side, s.from.owner != s.to.owner, one_space());
  }
  static constexpr bool travels(step_kind kind, buffer_side from, buffer_side to, bool owners_differ, bool one_space) {
    if (kind == step_kind::scale || kind == step_kind::divide || kind == step_kind::fill) return false;
    if (from == buffer_side::destination) return false;  // between slots of one owner
    return owners_differ || (to != buffer_side::staging && !one_space);
  }
};

using transfer_class = basic_transfer_class<distribution>;

}  // namespace shardmesh
