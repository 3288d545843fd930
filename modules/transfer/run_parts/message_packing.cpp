// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :lent_pieces;
import :message_packing;
import :round_messages;
import :route;
import :route_cursor;
import :run_call;
import :scratch;
import :step_memory;
import :transfer_names;

namespace shardmesh {

message_packing::message_packing(step_memory& steps, const transfer_names& names, run_call& call, scratch& room,
                                 lent_pieces& lenders, round_messages& messages, std::size_t most_receives)
    : steps_(steps), names_(names), call_(call), room_(room), lenders_(lenders), messages_(messages) {
  arrived_.reserve(most_receives);
}

result<void> message_packing::reserve(const batch_route& batch) {
  const std::int64_t messages = std::max(packed_bytes(batch.gather), packed_bytes(batch.deliver));
  SHARDMESH_TRY(std::byte* const begin, room_.reserve(batch.staging_bytes + messages));
  steps_.set_staging(begin);
  return {};
}

std::int64_t message_packing::packed_bytes(const message_round& round) const {
  if (messages_.lends()) return 0;
  std::int64_t sum = 0;
  for (const message& m : round.sends) sum += steps_.is_sent_directly(round, m) ? 0 : m.size_bytes;
  for (const message& m : round.receives) sum += steps_.is_received_directly(round, m) ? 0 : m.size_bytes;
  return sum;
}

result<void> message_packing::start(const route_cursor& at) {
  if (at.round().sends.empty() && at.round().receives.empty()) return {};
  return messages_.lends() ? lend(at) : send(at);
}

result<void> message_packing::lend(const route_cursor& at) {
  lenders_.clear();
  messages_.clear();
  for (const message& m : at.round().sends) messages_.lend(m, lenders_.of(at, m));
  for (const message& m : at.round().receives) messages_.borrow(m);
  return messages_.start(call_.options());
}

result<void> message_packing::send(const route_cursor& at) {
  const message_round& round = at.round();
  std::byte* room = steps_.staging() + at.batch().staging_bytes;
  arrived_.clear();
  messages_.clear();
  for (const message& m : round.sends) {
    if (steps_.is_sent_directly(round, m)) {
      const task& piece = round.outgoing[m.first];
      messages_.send(m, steps_.source_of(piece, steps_.step_of(piece), at).data);
    } else {
      SHARDMESH_TRY(pack(at, m, room));
      messages_.send(m, room);
      room += m.size_bytes;
    }
  }
  for (const message& m : round.receives) {
    if (steps_.is_received_directly(round, m)) {
      const task& piece = round.late[m.first];
      messages_.receive(m, steps_.target_of(piece, steps_.step_of(piece), at).data);
      arrived_.push_back(nullptr);
    } else {
      messages_.receive(m, room);
      arrived_.push_back(room);
      room += m.size_bytes;
    }
  }
  return messages_.start(call_.options());
}

result<void> message_packing::pack(const route_cursor& at, const message& m, std::byte* to) {
  const message_round& round = at.round();
  for (std::size_t i = m.first; i < m.first + m.pieces; ++i) {
    const task& piece = round.outgoing[i];
    const step s = steps_.step_of(piece);
    const tensor_view packed = row_major(to + piece.offset, steps_.type_in_message(piece, s), s.where.sizes);
    if (auto done = copy(packed, steps_.source_of(piece, s, at)); !done)
      return names_.located(std::move(done).error(), piece, s);
    SHARDMESH_TRY(call_.check_after(steps_.bytes_in_message(piece, s)));
  }
  return {};
}

}  // namespace shardmesh
