// SPDX-License-Identifier: Apache-2.0
// Not exported: a rank's part of a plan in the order in which the executor does it: one batch per round of the
// schedule, in each two rounds of messages with work before, between and after them. No memory is known here.
module shardmesh.transfer:route;

import shardmesh.std;
import shardmesh.core;
import shardmesh.layout;
import :plan;
import :rank_plan;
import :schedule;
import :step;

namespace shardmesh {

inline constexpr std::uint32_t no_staging = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t no_message = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t no_cut = std::numeric_limits<std::uint32_t>::max();

// One step or a part of it, and where it comes from when it travels.
struct task {
  std::uint32_t transfer = 0, step = 0;
  std::uint32_t staging = no_staging;  // the region that the step reads or writes
  std::uint32_t message = no_message;  // index among the round's receives (or sends)
  std::uint32_t piece = 0;             // number within the message
  std::uint32_t cut = no_cut;          // where its box is in `route::cuts`; else the whole step
  std::int64_t offset = 0;             // bytes from the message's begin
};

// Everything that goes to or comes from one peer in a round, one piece after the other.
struct message {
  std::int32_t peer = 0;
  std::uint32_t pieces = 0;
  std::size_t first = 0;  // sent: in `outgoing`; received: of its last piece in `late`
  std::int64_t size_bytes = 0;
};

struct message_round {
  std::vector<message> sends, receives;  // by peer, ascending
  std::vector<task> outgoing;            // by message, in wire order
  std::vector<task> early;               // local work that needs no message
  std::vector<task> late;                // received pieces, and what must wait for its turn among them
};

// A row-major part of a reduction on its reducer.
struct staging_region {
  std::uint32_t transfer = 0;
  std::int64_t volume = 0;
  std::int64_t offset = 0;  // bytes from the begin of the batch's staging
};

struct batch_route {
  message_round gather, deliver;     // the phases of these names
  std::vector<task> middle, finish;  // average; repeat and finish
  std::vector<staging_region> regions;
  std::int64_t staging_bytes = 0;
};

// What a transfer does with its elements.
struct transfer_types {
  dtype from = dtype::undefined, to = dtype::undefined;
  dtype wire = dtype::undefined;  // of values on their way
  dtype sum = dtype::undefined;   // in which terms are combined
  // The dtype in a message of a step: terms travel as they are.
  dtype in_message(const step& s) const { return s.to.side == buffer_side::staging ? from : wire; }
};

struct route {
  rank_plan steps;
  std::vector<transfer_types> types;  // per transfer
  std::vector<batch_route> batches;   // those in which this rank has something to do
  std::vector<std::int64_t> cuts;     // boxes of parts: offsets, sizes
  std::int64_t peak_bytes = 0;        // of messages and staging, when every message is packed

  // The step of a task, or the part of it.
  step step_of(const task& work) const;
};

// `messages`: false when ranks read each other's memory.
route make_route(const transfer_plan& plan, rank_plan steps, const schedule& rounds, bool messages);

// Bytes of a box of this type. Precondition: planned, so they fit.
std::int64_t bytes_of(const box& where, dtype type);

}  // namespace shardmesh
