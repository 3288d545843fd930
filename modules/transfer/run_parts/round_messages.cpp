// SPDX-License-Identifier: Apache-2.0
module;
#include <shardmesh/try.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.transfer;

import :route;
import :round_messages;

namespace shardmesh {

round_messages::round_messages(communicator_ref comm, message_transport transport, const message_counts& most)
    : comm_(comm), transport_(transport) {
  if (lends()) {
    lent_.reserve(most.sends);
    borrowed_.reserve(most.receives);
  } else {
    outgoing_.reserve(most.sends);
    incoming_.reserve(most.receives);
  }
}

void round_messages::send(const message& m, const std::byte* from) {
  outgoing_.push_back({m.peer, {from, static_cast<std::size_t>(m.size_bytes)}});
}

void round_messages::receive(const message& m, std::byte* to) {
  incoming_.push_back({m.peer, {to, static_cast<std::size_t>(m.size_bytes)}});
}

void round_messages::lend(const message& m, const lender& pieces) {
  lent_.push_back({m.peer, &pieces, m.size_bytes});
}

void round_messages::borrow(const message& m) {
  borrowed_.push_back({m.peer, m.size_bytes});
}

result<void> round_messages::start(const call_options& call) {
  if (lends()) {
    SHARDMESH_TRY(loan_, comm_.start_lending(lent_, borrowed_, call));
  } else {
    SHARDMESH_TRY(exchange_, comm_.start_exchange(outgoing_, incoming_, call));
  }
  return {};
}

result<void> round_messages::check_interruption() {
  if (!loan_.interrupted()) return {};
  SHARDMESH_TRY(loan_.wait());  // its error says what happened
  return fail(errc::communication, "another rank failed");
}

void round_messages::end_aborted() {
  // They end with the reason that poisoned the communicator, which the caller knows.
  static_cast<void>(exchange_.wait());
  static_cast<void>(loan_.wait());
}

}  // namespace shardmesh
