// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.conformance;

import :trial;

namespace shardmesh {
namespace {

using clock = std::chrono::steady_clock;

call_options until(clock::time_point deadline, std::uint32_t tag) {
  call_options made;
  made.within = deadline;
  made.tag = tag;
  return made;
}

}  // namespace

bool trial::expect(bool holds, std::string expected, std::string found) {
  if (!holds) problems_.push_back({std::string(name_), rank, std::move(expected), std::move(found)});
  return holds;
}

bool trial::succeeds(const result<void>& done, std::string_view what) {
  return expect(done.has_value(), fmt::format("{} succeeds", what), done ? "" : to_string(done.error()));
}

bool trial::fails(const result<void>& done, errc code, std::string_view what) {
  return expect(!done && done.error().code == code,
                fmt::format("{} fails with '{}'", what, make_error_code(code).message()),
                done ? "success" : to_string(done.error()));
}

call_options trial::patient(std::uint32_t tag) const {
  return until(clock::now() + options.patience, tag);
}

call_options trial::hasty(std::uint32_t tag) const {
  return until(clock::now() + options.deadline, tag).named(hasty_name);
}

bool trial::meet(std::string_view when) {
  const auto met = comm.all_gather({}, patient());
  // Without a second all_gather, a fast rank could fail the communicator while others still wait in the first. The
  // second one ends only after every rank has left the first.
  if (met) static_cast<void>(comm.all_gather({}, patient()));
  return succeeds(met ? result<void>{} : result<void>(met.error()), fmt::format("an all_gather {}", when));
}

void trial::becomes_poisoned(errc code) {
  // A rank learns of a failure in its calls, and the news of a recent failure may still be under way.
  const clock::time_point end = clock::now() + options.deadline + options.grace;
  for (;;) {
    const auto called = comm.start_exchange({}, {}, patient());
    if (!called) {
      fails(called.error(), code, "a later call");
      break;
    }
    if (!expect(clock::now() < end, "an error in every later call", "a call that succeeds")) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto again = comm.all_gather({}, patient());
  fails(again ? result<void>{} : result<void>(again.error()), code, "a later all_gather");
}

std::vector<std::byte> message_bytes(std::int32_t from, std::int32_t to, std::uint32_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  const std::uint64_t seed =
      static_cast<std::uint64_t>(from) * 1'000'003 + static_cast<std::uint64_t>(to) * 10'007 + number;
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((seed + i / 8 * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9 >> (8 * (i % 8)));
  return bytes;
}

bool bordered::holds(std::span<const std::byte> expected) const {
  const auto is_filling = [](std::byte b) { return b == filling; };
  const auto inner = std::span(all_).subspan(border, all_.size() - 2 * border);
  return std::ranges::all_of(std::span(all_).first(border), is_filling) &&
         std::ranges::all_of(std::span(all_).last(border), is_filling) && std::ranges::equal(inner, expected);
}

bool bordered::is_untouched() const {
  return std::ranges::all_of(all_, [](std::byte b) { return b == filling; });
}

std::optional<started_exchange> start_between_all(trial& t, std::uint32_t number,
                                                  function_ref<std::size_t(std::int32_t, std::int32_t)> size_of,
                                                  std::uint32_t tag) {
  started_exchange e;
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::int32_t peer = 0; peer < t.size; ++peer) {
    if (peer == t.rank) continue;
    if (const std::size_t size = size_of(t.rank, peer); size > 0) {
      e.sent.push_back(message_bytes(t.rank, peer, number, size));
      sends.push_back({peer, e.sent.back()});
    }
    if (const std::size_t size = size_of(peer, t.rank); size > 0) {
      auto& one = e.received.emplace_back(started_exchange::expected_message{
          peer, message_bytes(peer, t.rank, number, size), std::make_unique<bordered>(size)});
      receives.push_back({peer, one.room->inside()});
    }
  }
  auto started = t.comm.start_exchange(sends, receives, t.patient(tag));
  if (!t.succeeds(started ? result<void>{} : result<void>(started.error()), "start_exchange")) return std::nullopt;
  e.work = *std::move(started);
  return e;
}

bool arrived(trial& t, const started_exchange& e, std::string_view what) {
  for (const auto& one : e.received)
    if (!t.expect(one.room->holds(one.bytes),
                  fmt::format("{}: {} bytes of rank {}, as they were sent", what, one.bytes.size(), one.from),
                  "other bytes, or bytes written outside the buffer"))
      return false;
  return true;
}

bool finish(trial& t, started_exchange& e, std::string_view what) {
  return t.succeeds(e.work.wait(), what) && arrived(t, e, what);
}

}  // namespace shardmesh
