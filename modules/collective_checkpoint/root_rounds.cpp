// SPDX-License-Identifier: Apache-2.0
// Rounds between rank 0 and every other rank. Messages go straight to rank 0 and back: on a tree of ranks, the inner
// ranks would relay the notes of all ranks below them, so their traffic would grow with the number of ranks.
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
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

using size_message = std::array<std::byte, 8>;

size_message encode_size(std::size_t size_bytes) {
  size_message made{};
  auto left = static_cast<std::uint64_t>(size_bytes);
  for (std::byte& digit : made) {
    digit = static_cast<std::byte>(left & 0xFF);
    left >>= 8;
  }
  return made;
}

std::size_t decode_size(const size_message& message) {
  std::uint64_t made = 0;
  for (std::size_t i = message.size(); i-- > 0;) made = made << 8 | static_cast<std::uint64_t>(message[i]);
  return static_cast<std::size_t>(made);
}

// Returns whether two ranks can exchange messages in host memory without the others. `all_gather` always can.
bool has_host_messages(communicator_ref comm) {
  return comm.memory() == device{} && !comm.is_ordered();
}

result<void> move_messages(communicator_ref comm, std::span<const outgoing> sends, std::span<const incoming> receives,
                           const call_options& call) {
  if (sends.empty() && receives.empty()) return {};
  call_options tagged = call;
  tagged.tag = message_tag;
  SHARDMESH_TRY(pending moving, comm.start_exchange(sends, receives, tagged));
  return moving.wait();
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

// Rank 0's side of `hand_out`. No message is empty.
result<void> send_parts(communicator_ref comm, std::span<const std::vector<std::byte>> parts,
                        const call_options& call) {
  std::vector<size_message> sizes;
  sizes.reserve(parts.size());
  std::vector<outgoing> headers, bodies;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const size_message& size = sizes.emplace_back(encode_size(parts[rank].size()));
    if (rank == 0) continue;
    headers.push_back({static_cast<std::int32_t>(rank), size});
    if (!parts[rank].empty()) bodies.push_back({static_cast<std::int32_t>(rank), parts[rank]});
  }
  SHARDMESH_TRY(move_messages(comm, headers, {}, call));
  return move_messages(comm, bodies, {}, call);
}

}  // namespace

result<std::vector<std::size_t>> round_of_ranks::announce(const result<void>& mine, std::size_t size_bytes,
                                                          std::span<const agreement_record> records) const {
  detail::wire_writer note;
  note.number(static_cast<std::int64_t>(size_bytes));
  SHARDMESH_TRY(const agreement_notes told, settle(mine, std::move(note).take(), records));
  std::vector<std::size_t> sizes;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    detail::wire_reader in(told[rank]);
    sizes.push_back(static_cast<std::size_t>(in.in_range(0, INT64_MAX)));
    if (!in.finished())
      return fail(errc::bad_format, "the size of a rank's note is malformed")
          .with_rank(static_cast<std::int32_t>(rank));
  }
  return sizes;
}

result<agreement_notes> round_of_ranks::send_to_root(std::vector<std::byte> note,
                                                     std::span<const std::size_t> sizes) const {
  const bool is_root = comm.rank() == 0;
  agreement_notes notes(is_root ? sizes.size() : 0);
  if (std::all_of(sizes.begin(), sizes.end(), [](std::size_t size) { return size == 0; })) return notes;
  if (!has_host_messages(comm)) {
    SHARDMESH_TRY(agreement_notes told, comm.all_gather(note, call));
    if (is_root) notes = std::move(told);
    return notes;
  }
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  if (!is_root && !note.empty()) sends.push_back({0, note});
  for (std::size_t rank = 1; rank < notes.size(); ++rank) {
    if (sizes[rank] == 0) continue;
    notes[rank].resize(sizes[rank]);
    receives.push_back({static_cast<std::int32_t>(rank), notes[rank]});
  }
  SHARDMESH_TRY(move_messages(comm, sends, receives, call));
  if (is_root) notes.front() = std::move(note);
  return notes;
}

result<agreement_notes> round_of_ranks::collect(const result<void>& mine, std::vector<std::byte> note) const {
  SHARDMESH_TRY(const std::vector<std::size_t> sizes, announce(mine, note.size()));
  return send_to_root(std::move(note), sizes);
}

result<std::vector<std::byte>> round_of_ranks::hand_out(agreement_notes parts) const {
  if (!has_host_messages(comm)) return hand_out_to_all(comm, parts, call);
  if (comm.rank() == 0) {
    SHARDMESH_TRY(send_parts(comm, parts, call));
    return std::move(parts.front());
  }
  size_message size{};
  const incoming header{0, size};
  SHARDMESH_TRY(move_messages(comm, {}, {&header, 1}, call));
  std::vector<std::byte> mine(decode_size(size));
  if (mine.empty()) return mine;
  const incoming body{0, mine};
  SHARDMESH_TRY(move_messages(comm, {}, {&body, 1}, call));
  return mine;
}

}  // namespace shardmesh
