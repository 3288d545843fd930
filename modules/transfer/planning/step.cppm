// SPDX-License-Identifier: Apache-2.0
// A step: one piece of work of a transfer. Tables of steps are in `step_table`; the planner is in `plan`.
export module shardmesh.transfer:step;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// The operation that a step applies to its piece.
enum class step_kind : std::uint8_t {
  copy,        // from -> to, with a cast if their types differ
  accumulate,  // to = to (reduction) from
  scale,       // to = to * factor
  divide,      // to = to / factor: turns a sum into an average
  fill,        // to = the identity of the destination's reduction
};

/// The buffer that a step touches: a slot of the source or destination distribution, or a staging buffer. The planner
/// adds staging buffers. Each is row-major, as large as the step's box, and of the type in which reductions accumulate.
enum class buffer_side : std::uint8_t { source, destination, staging };

/// The phase of a step. Phases run one after another. Every message of a phase has arrived before the next phase uses
/// its data. A table therefore runs from its first step to its last, and no step names its dependencies.
enum class step_phase : std::uint8_t {
  gather,   // copies of values, and terms on their way to the reducer
  average,  // division of sums, at the reducer
  deliver,  // results on their way to their receivers
  repeat,   // copies between slots of one owner
  finish,   // scaling and filling of a Partial destination
};

/// One end of a step. `offsets` are the first element's indices in the slot's own index space (zeros in staging).
struct step_end {
  owner_id owner = 0;
  buffer_side side = buffer_side::source;
  std::int32_t slot = 0;
  extents offsets;
  friend bool operator==(const step_end&, const step_end&) = default;
};

/// One piece of work. It is local if both ends belong to one owner of one space; otherwise the piece travels.
struct step {
  step_kind kind = step_kind::copy;
  step_phase phase = step_phase::gather;
  reduce_op reduction = reduce_op::none;  // for accumulate and fill
  std::int32_t term = 0;                  // the source's term that this step carries
  std::int64_t factor = 1;                // for scale and divide
  box where;                              // in the global tensor; its sizes are the piece's
  step_end from, to;
  friend bool operator==(const step&, const step&) = default;
};

/// A step without its box and its offsets.
struct step_head {
  std::int64_t factor = 1;
  owner_id from_owner = 0, to_owner = 0;
  std::int32_t from_slot = 0, to_slot = 0, term = 0;
  step_kind kind = step_kind::copy;
  step_phase phase = step_phase::gather;
  reduce_op reduction = reduce_op::none;
  buffer_side from_side = buffer_side::source, to_side = buffer_side::source;
  constexpr step_head() = default;
  constexpr explicit step_head(const step& s)
      : factor(s.factor),
        from_owner(s.from.owner),
        to_owner(s.to.owner),
        from_slot(s.from.slot),
        to_slot(s.to.slot),
        term(s.term),
        kind(s.kind),
        phase(s.phase),
        reduction(s.reduction),
        from_side(s.from.side),
        to_side(s.to.side) {}
};

}  // namespace shardmesh
