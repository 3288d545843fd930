// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <plural.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>
module shardmesh.comm;

namespace shardmesh::detail {
namespace {

std::string text_of(const call_identity& call) {
  return fmt::format("{} (tag {})", part_of_call(call.part, call.name), call.tag);
}

error ended_before(const call_identity& call, errc ended) {
  return fail(ended, ended == errc::cancelled
                         ? fmt::format("rank {} was cancelled before {}", call.rank, text_of(call))
                         : fmt::format("the deadline of rank {} had passed before {}", call.rank, text_of(call)))
      .with_rank(call.rank);
}

std::string awaited_text(const std::vector<std::int32_t>& senders, const std::vector<std::int32_t>& takers) {
  if (senders.empty() && takers.empty()) return "other ranks";
  if (takers.empty()) return "messages from " + ranks_text(senders);
  if (senders.empty()) return ranks_text(takers) + " to receive its messages";
  return fmt::format("messages from {}, and for {} to receive its own", ranks_text(senders), ranks_text(takers));
}

}  // namespace

result<call_limits> begin_call(const call_identity& call, const call_options& options, stream_policy streams,
                               const std::optional<error>& poison, function_ref<void(error)> set_poison) {
  if (poison) return *poison;
  if (streams == stream_policy::refused && options.stream.handle != nullptr)
    return fail(errc::unsupported, fmt::format("rank {} passes a device stream to {}, which works on host memory",
                                               call.rank, text_of(call)))
        .with_rank(call.rank)
        .with_hint("pass no stream");
  call_limits limits(options);
  const errc ended = limits.reached(limits.began);
  if (ended == errc::ok) return limits;
  set_poison(ended_before(call, ended));
  return *poison;
}

error ended_within(const call_identity& call, errc ended) {
  return fail(ended, ended == errc::cancelled
                         ? fmt::format("rank {} was cancelled in {}", call.rank, text_of(call))
                         : fmt::format("the deadline of rank {} has passed in {}", call.rank, text_of(call)))
      .with_rank(call.rank);
}

error ended_wait(const call_identity& call, const call_limits& limits, errc ended, std::vector<std::int32_t> senders,
                 std::vector<std::int32_t> takers) {
  if (ended == errc::cancelled) return ended_within(call, ended);
  std::sort(senders.begin(), senders.end());
  std::sort(takers.begin(), takers.end());
  const std::string waited = duration_text(std::chrono::steady_clock::now() - limits.began);
  error problem = fail(ended, fmt::format("rank {} timed out after {} waiting for {} in {}", call.rank, waited,
                                          awaited_text(senders, takers), text_of(call)));
  std::set_union(senders.begin(), senders.end(), takers.begin(), takers.end(), std::back_inserter(problem.ranks));
  return problem;
}

}  // namespace shardmesh::detail
