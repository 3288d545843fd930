// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
module shardmesh.comm;

namespace shardmesh {
namespace {

using clock = std::chrono::steady_clock;

std::string text_of(const trace_event& e) {
  const std::string call = detail::part_of_call(e.call, e.of);
  if (e.peers == 0) return call;
  return fmt::format("{} (tag {}, {} message{}, {})", call, e.tag, e.peers, e.peers == 1 ? "" : "s",
                     human_bytes(e.size_bytes));
}

}  // namespace

std::string detail::part_of_call(std::string_view part, std::string_view call) {
  return call.empty() ? std::string(part) : fmt::format("{} of {}", part, call);
}

std::uint64_t trace_ring::begin(const char* call, std::uint32_t tag, std::int32_t peers, std::int64_t size_bytes,
                                const char* of) {
  events_[next_ % capacity] = {call, tag, peers, size_bytes, clock::now(), {}, false, of};
  return next_++;
}

void trace_ring::end(std::uint64_t number) {
  if (next_ - number > capacity) return;
  events_[number % capacity].ended = clock::now();
  events_[number % capacity].is_over = true;
}

std::string trace_ring::now() const {
  if (next_ == 0) return "has made no call";
  const std::uint64_t first = next_ - std::min<std::uint64_t>(next_, capacity);
  const clock::time_point now = clock::now();
  for (std::uint64_t i = next_; i-- > first;)
    if (const trace_event& e = (*this)[i]; !e.is_over)
      return fmt::format("in {} for {}", text_of(e), detail::duration_text(now - e.began));
  const trace_event& last = (*this)[next_ - 1];
  return fmt::format("idle for {} after {}", detail::duration_text(now - last.ended), text_of(last));
}

std::string trace_ring::history() const {
  std::string text;
  const std::uint64_t first = next_ - std::min<std::uint64_t>(next_, capacity);
  for (std::uint64_t i = first; i < next_; ++i) {
    const trace_event& e = (*this)[i];
    if (!text.empty()) text += ", ";
    text += text_of(e) + (e.is_over ? " " + detail::duration_text(e.ended - e.began) : std::string(" (running)"));
  }
  return text;
}

}  // namespace shardmesh
