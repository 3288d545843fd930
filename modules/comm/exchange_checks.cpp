// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/format.h>
#include <plural.hpp>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
    if (m.peer < 0 || m.peer >= size) return problem(m.peer, fmt::format("rank {}, of a group of {}", m.peer, size));
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

error waited_in_vain(std::int32_t rank, std::string_view part, std::uint32_t tag, std::vector<std::int32_t> senders,
                     std::vector<std::int32_t> takers) {
  std::sort(senders.begin(), senders.end());
  std::sort(takers.begin(), takers.end());
  std::vector<std::int32_t> all;
  std::set_union(senders.begin(), senders.end(), takers.begin(), takers.end(), std::back_inserter(all));
  std::string text = fmt::format("rank {} waited in vain", rank);
  if (!senders.empty()) text += " for messages from " + rank_list(senders);
  if (!takers.empty())
    text +=
        fmt::format("{} {}", senders.empty() ? " for its messages to be taken by" : ", and for its own to be taken by",
                    rank_list(takers));
  error problem = fail(errc::deadline_exceeded, fmt::format("{} in {} (tag {})", text, part, tag));
  problem.ranks = std::move(all);
  return problem;
}

error of_another_process(std::int32_t rank, std::string_view hint) {
  return fail(errc::invalid_argument,
              fmt::format("rank {} belongs to the process that forked this one, which cannot use it", rank))
      .with_rank(rank)
      .with_hint(hint);
}

}  // namespace shardmesh::detail
