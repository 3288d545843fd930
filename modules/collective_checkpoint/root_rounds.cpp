// SPDX-License-Identifier: Apache-2.0
// Rounds between rank 0 and every other rank. Messages go straight to rank 0 and back: on a tree of ranks, the inner
// ranks would relay the notes of all ranks below them, so their traffic would grow with the number of ranks.
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.collective_checkpoint;

import shardmesh.comm;
import :rank_state;

namespace shardmesh {
namespace {

// The last tag of users, so that messages that a program has in flight under other tags are not taken for these.
constexpr std::uint32_t message_tag = (1U << 12) - 1;

call_options tagged(call_options call) {
  call.tag = message_tag;
  return call;
}

// `hand_out` for communicators without messages in host memory: every rank receives all parts.
result<std::vector<std::byte>> hand_out_to_all(communicator_ref comm, const agreement_notes& parts,
                                               const call_options& call) {
  detail::wire_writer all;
  for (const std::vector<std::byte>& part : parts) all.bytes(part);
  SHARDMESH_TRY(const agreement_notes told, comm.all_gather(all.written(), call));
  detail::wire_reader in(told.front());
  std::vector<std::byte> mine;
  for (std::int32_t rank = 0; rank <= comm.rank(); ++rank) mine = in.bytes();
  if (in.ok()) return mine;
  return fail(errc::bad_format, "the parts that rank 0 hands out are malformed").with_rank(0);
}

}  // namespace

result<agreement_notes> round_of_ranks::collect(const result<void>& mine, std::vector<std::byte> note,
                                                std::span<const agreement_record> records) const {
  SHARDMESH_TRY(settle(mine, {}, records));
  return send_to_root(std::move(note));
}

result<agreement_notes> round_of_ranks::send_to_root(std::vector<std::byte> note) const {
  const bool is_root = comm.rank() == 0;
  agreement_notes notes;
  if (!detail::has_host_messages(comm)) {
    SHARDMESH_TRY(agreement_notes told, comm.all_gather(note, call));
    if (is_root) notes = std::move(told);
    return notes;
  }
  if (!is_root) {
    const outgoing message{0, note};
    SHARDMESH_TRY(detail::send_sized(comm, {&message, 1}, tagged(call)));
    return notes;
  }
  std::vector<std::int32_t> others(static_cast<std::size_t>(comm.size()) - 1);
  std::iota(others.begin(), others.end(), 1);
  SHARDMESH_TRY(notes, detail::receive_sized(comm, others, tagged(call)));
  notes.insert(notes.begin(), std::move(note));
  return notes;
}

result<std::vector<std::byte>> round_of_ranks::hand_out(agreement_notes parts) const {
  if (!detail::has_host_messages(comm)) return hand_out_to_all(comm, parts, call);
  if (comm.rank() != 0) {
    const std::int32_t root = 0;
    SHARDMESH_TRY(agreement_notes mine, detail::receive_sized(comm, {&root, 1}, tagged(call)));
    return std::move(mine.front());
  }
  std::vector<outgoing> messages;
  for (std::size_t rank = 1; rank < parts.size(); ++rank)
    messages.push_back({static_cast<std::int32_t>(rank), parts[rank]});
  SHARDMESH_TRY(detail::send_sized(comm, messages, tagged(call)));
  return std::move(parts.front());
}

}  // namespace shardmesh
