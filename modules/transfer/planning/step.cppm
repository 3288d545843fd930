// SPDX-License-Identifier: Apache-2.0
// step: one piece of work of a transfer. Not here: tables of them (step_table), who decides (plan).
export module shardmesh.transfer:step;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;

export namespace shardmesh {

/// What a step does with its piece.
enum class step_kind : std::uint8_t {
  copy,        // from -> to, with a cast where their types differ
  accumulate,  // to = to (reduction) from
  scale,       // to = to * factor
  divide,      // to = to / factor: an average of a sum
  fill,        // to = the identity of the destination's reduction
};

/// Which of an owner's buffers a step touches: a slot of the source or the destination distribution, or a row-major
/// buffer of the planner's own, of the type that reductions accumulate in, as large as the step's box.
enum class buffer_side : std::uint8_t { source, destination, staging };

/// When a step runs. Phases follow one another, and every message of one is complete before the next one uses what it
/// brought: so a table is executed from its first step to its last, and no step has to name those that it waits for.
enum class step_phase : std::uint8_t {
  gather,   // copies of values, and terms on their way to who adds them up
  average,  // division of sums, where they are
  deliver,  // results to their receivers
  repeat,   // copies between slots of one owner
  finish,   // scaling and filling of a partial destination
};

/// One end of a step. `offsets` are the first element's indices in the slot's own index space (zeros in staging).
struct step_end {
  owner_id owner = 0;
  buffer_side side = buffer_side::source;
  std::int32_t slot = 0;
  extents offsets;
  friend bool operator==(const step_end&, const step_end&) = default;
};

/// One piece of work. Local when both owners are the same (in one owner space); otherwise the piece travels.
struct step {
  step_kind kind = step_kind::copy;
  step_phase phase = step_phase::gather;
  reduce_op reduction = reduce_op::none;  // of accumulate and fill
  std::int32_t term = 0;                  // which term of the source it carries
  std::int64_t factor = 1;                // of scale and divide
  box where;                              // of the global tensor; its sizes are the piece's
  step_end from, to;
  friend bool operator==(const step&, const step&) = default;
};

/// A step without its box and offsets.
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
