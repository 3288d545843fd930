// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <shardmesh/try.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh::detail {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;  // of one message; no machine has memory for more

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

std::uint64_t decode_size(const size_message& message) {
  std::uint64_t made = 0;
  for (std::size_t i = message.size(); i-- > 0;) made = made << 8 | static_cast<std::uint64_t>(message[i]);
  return made;
}

}  // namespace

bool has_host_messages(communicator_ref comm) {
  return comm.memory() == device{} && !comm.is_ordered();
}

result<void> move_messages(communicator_ref comm, std::span<const outgoing> sends, std::span<const incoming> receives,
                           const call_options& call) {
  if (sends.empty() && receives.empty()) return {};
  SHARDMESH_TRY(pending moving, comm.start_exchange(sends, receives, call));
  return moving.wait();
}

result<void> send_sized(communicator_ref comm, std::span<const outgoing> messages, const call_options& call) {
  std::vector<size_message> sizes;
  sizes.reserve(messages.size());  // the headers refer to its elements
  std::vector<outgoing> headers, bodies;
  for (const outgoing& message : messages) {
    const size_message& size = sizes.emplace_back(encode_size(message.bytes.size()));
    headers.push_back({message.peer, size});
    if (!message.bytes.empty()) bodies.push_back(message);
  }
  SHARDMESH_TRY(move_messages(comm, headers, {}, call));
  return move_messages(comm, bodies, {}, call);
}

result<std::vector<std::vector<std::byte>>> receive_sized(communicator_ref comm, std::span<const std::int32_t> senders,
                                                          const call_options& call) {
  std::vector<size_message> sizes(senders.size());
  std::vector<incoming> headers, bodies;
  for (std::size_t i = 0; i < senders.size(); ++i) headers.push_back({senders[i], sizes[i]});
  SHARDMESH_TRY(move_messages(comm, {}, headers, call));
  std::vector<std::vector<std::byte>> received(senders.size());
  for (std::size_t i = 0; i < senders.size(); ++i) {
    const std::uint64_t size = decode_size(sizes[i]);
    if (size > most_bytes) {
      error malformed = fail(errc::bad_format, "a rank announces a message of an impossible size")
                            .with_rank(senders[i])
                            .with_values(fmt::format("at most {} bytes", most_bytes), fmt::format("{} bytes", size));
      comm.abort(malformed);  // the sender waits until this rank receives
      return malformed;
    }
    received[i].resize(static_cast<std::size_t>(size));
    if (size != 0) bodies.push_back({senders[i], received[i]});
  }
  SHARDMESH_TRY(move_messages(comm, {}, bodies, call));
  return received;
}

}  // namespace shardmesh::detail
