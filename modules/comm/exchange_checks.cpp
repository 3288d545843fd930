// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
module shardmesh.comm;

namespace shardmesh::detail {
namespace {

template <class Message>
result<void> check_list(std::int32_t rank, std::int32_t size, std::span<const Message> messages,
                        std::string_view verb) {
  std::vector<std::int32_t> peers;
  peers.reserve(messages.size());
  const auto problem = [&](std::int32_t peer, const std::string& what) {
    return fail(errc::invalid_argument, fmt::format("rank {} {} {}", rank, verb, what)).with_rank(peer);
  };
  for (const Message& m : messages) {
    if (m.peer == rank) return problem(m.peer, "itself");
    if (m.peer < 0 || m.peer >= size)
      return problem(m.peer, fmt::format("rank {}, but the group has {}", m.peer, counted(size, "rank")));
    if (m.bytes.empty()) return problem(m.peer, fmt::format("rank {}, but the message is empty", m.peer));
    peers.push_back(m.peer);
  }
  std::sort(peers.begin(), peers.end());
  const auto twice = std::adjacent_find(peers.begin(), peers.end());
  if (twice == peers.end()) return {};
  return problem(*twice, fmt::format("rank {} twice in one call", *twice));
}

}  // namespace

result<void> check_peers(std::int32_t rank, std::int32_t size, std::span<const outgoing> sends,
                         std::span<const incoming> receives) {
  SHARDMESH_TRY(check_list(rank, size, sends, "sends to"));
  return check_list(rank, size, receives, "receives from");
}

error of_another_process(std::int32_t rank, std::string_view hint) {
  return fail(errc::invalid_argument,
              fmt::format("the communicator of rank {} belongs to the process that forked this one", rank))
      .with_rank(rank)
      .with_hint(hint);
}

}  // namespace shardmesh::detail
