// SPDX-License-Identifier: Apache-2.0
// A rank's part of a plan in the executor's order: one batch per round of the schedule. A batch has two rounds of
// messages, with work before, between, and after them. A route is independent of memory addresses. Exports nothing.
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

// A step or a part of it, with its place in a message if it travels.
struct task {
  std::uint32_t transfer = 0, step = 0;
  std::uint32_t staging = no_staging;  // the region that the step reads or writes
  std::uint32_t message = no_message;  // index among the round's receives (or sends)
  std::uint32_t piece = 0;             // number within the message
  std::uint32_t cut = no_cut;          // index of its box in `route::cuts`; else the whole step
  std::int64_t offset = 0;             // bytes from the start of the message
};

// The pieces that one round sends to a peer or receives from it, one after another.
struct message {
  std::int32_t peer = 0;
  std::uint32_t pieces = 0;
  std::size_t first = 0;  // send: index in `outgoing`; receive: its last piece's index in `late`
  std::int64_t size_bytes = 0;
};

struct message_round {
  std::vector<message> sends, receives;  // by peer, ascending
  std::vector<task> outgoing;            // by message, in wire order
  std::vector<task> early;               // local work that needs no message
  std::vector<task> late;                // received pieces, and work that is ordered among them
};

// A row-major part of a reduction, on its reducer.
struct staging_region {
  std::uint32_t transfer = 0;
  std::int64_t volume = 0;
  std::int64_t offset = 0;  // bytes from the start of the batch's staging
};

struct batch_route {
  message_round gather, deliver;     // the phases of the same names
  std::vector<task> middle, finish;  // average; repeat and finish
  std::vector<staging_region> regions;
  std::int64_t staging_bytes = 0;
};

// The dtypes of a transfer.
struct transfer_types {
  dtype from = dtype::undefined, to = dtype::undefined;
  dtype wire = dtype::undefined;  // of values in messages
  dtype sum = dtype::undefined;   // in which terms are combined
  // The dtype of a step's piece in a message. Terms travel in the source's type.
  dtype in_message(const step& s) const { return s.to.side == buffer_side::staging ? from : wire; }
};

struct route {
  rank_plan steps;
  std::vector<transfer_types> types;  // per transfer
  std::vector<batch_route> batches;   // those in which this rank has work
  std::vector<std::int64_t> cuts;     // boxes of parts: offsets, sizes
  std::int64_t peak_bytes = 0;        // of messages and staging, if every message is packed

  // The step of a task, cut down to the task's part.
  step step_of(const task& work) const;
};

// The most messages that a round of the route sends, and the most that one receives.
struct message_counts {
  std::size_t sends = 0, receives = 0;
};
message_counts most_messages(const route& r);

// `messages` is false if ranks read each other's memory.
route make_route(const transfer_plan& plan, rank_plan steps, const schedule& rounds, bool messages);

// Bytes of a box of this type. Precondition: the box is from a plan, so its bytes fit in 64 bits.
std::int64_t bytes_of(const box& where, dtype type);

}  // namespace shardmesh
