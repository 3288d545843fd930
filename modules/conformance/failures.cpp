// SPDX-License-Identifier: Apache-2.0
// Checks of ranks that are missing, give up, or are stopped. Every rank must soon get an error, and nothing may touch
// that rank's memory afterwards.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stop_token>
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

const char* const reason_text = "this rank has had enough";

error reason() {
  return fail(errc::no_space, reason_text);
}

template <class T>
result<void> outcome_of(const result<T>& done) {
  return done ? result<void>{} : result<void>(done.error());
}

// Starts to receive from a peer, and waits.
result<void> receive(trial& t, std::int32_t peer, std::span<std::byte> room, const call_options& options) {
  const std::vector<incoming> receives{{peer, room}};
  auto started = t.comm.start_exchange({}, receives, options);
  return started ? started->wait() : result<void>(started.error());
}

void check_names(trial& t, const result<void>& done, std::int32_t rank) {
  if (done) return;
  const auto& ranks = done.error().ranks;
  t.expect(std::ranges::find(ranks, rank) != ranks.end(), fmt::format("an error that names rank {}", rank),
           to_string(done.error()));
}

// Returns whether the text has a length of time ("251 ms", "1.25 s") between two lengths.
bool has_time_between(const std::string& text, std::chrono::milliseconds least, std::chrono::milliseconds most) {
  const char* const digits = "0123456789";
  for (std::size_t at = text.find_first_of(digits); at < text.size(); at = text.find_first_of(digits, at)) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str() + at, &end);
    at = static_cast<std::size_t>(end - text.c_str());
    const std::string unit = text.substr(at, text.find_first_of(" ,;)", at + 1) - at);
    const double milliseconds = unit == " ms" ? number : unit == " s" ? number * 1000 : -1;
    if (milliseconds >= static_cast<double>(least.count()) && milliseconds <= static_cast<double>(most.count()))
      return true;
  }
  return false;
}

// Expects that the error of a hasty call names the operation, the call, and the tag.
void check_says_call(trial& t, const result<void>& done, std::string_view operation, std::uint32_t tag) {
  if (done) return;
  const std::string& text = done.error().message;
  for (const std::string& part : {std::string(operation), std::string(trial::hasty_name), fmt::format("tag {}", tag)})
    t.expect(text.find(part) != std::string::npos, fmt::format("a message that contains '{}'", part), text);
}

// Expects that the error of a hasty call also says how long the call has waited.
void check_says_wait(trial& t, const result<void>& done, std::string_view operation, std::uint32_t tag) {
  check_says_call(t, done, operation, tag);
  if (done) return;
  const std::string& text = done.error().message;
  t.expect(has_time_between(text, t.options.deadline / 2, t.options.deadline + t.options.grace),
           fmt::format("a message with the time waited, about {} ms", t.options.deadline.count()), text);
}

// Expects that a call that began at `began` failed at the deadline.
void check_time(trial& t, clock::time_point began) {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began);
  // Another rank may have begun earlier and notified this one.
  t.expect(took >= t.options.deadline / 2 && took <= t.options.deadline + t.options.grace,
           fmt::format("an error at the deadline of {} ms", t.options.deadline.count()),
           fmt::format("one after {} ms", took.count()));
}

bool says_reason(trial& t, const result<void>& done, std::string_view what) {
  return t.fails(done, errc::no_space, what) && t.expect(to_string(done.error()).find(reason_text) != std::string::npos,
                                                         "the text of the reason", to_string(done.error()));
}

}  // namespace

void check_gather_deadline(trial& t) {
  if (t.size == 1) return;
  const std::int32_t absent = t.size - 1;
  if (t.rank == absent) {
    std::this_thread::sleep_for(t.options.deadline + t.options.grace / 4);
  } else {
    const auto began = clock::now();
    const auto done = outcome_of(t.comm.all_gather({}, t.hasty(5)));
    check_time(t, began);
    if (t.fails(done, errc::deadline_exceeded, "all_gather without the last rank")) {
      check_names(t, done, absent);
      check_says_wait(t, done, "all_gather", 5);
    }
  }
  t.becomes_poisoned(errc::deadline_exceeded);
}

void check_exchange_deadline(trial& t) {
  if (t.size == 1) return;
  bordered room(100'000);
  if (t.rank == 0) {
    const auto began = clock::now();
    const auto done = receive(t, 1, room.inside(), t.hasty(3));
    check_time(t, began);
    if (t.fails(done, errc::deadline_exceeded, "a wait for a message that is not sent")) {
      check_names(t, done, 1);
      check_says_wait(t, done, "exchange", 3);
    }
  }
  t.becomes_poisoned(errc::deadline_exceeded);
  if (t.rank == 1) {
    const std::vector<std::byte> late = message_bytes(1, 0, 1, 100'000);
    const std::vector<outgoing> sends{{0, late}};
    auto started = t.comm.start_exchange(sends, {}, t.patient(3));
    t.fails(started ? started->wait() : result<void>(started.error()), errc::deadline_exceeded, "a late message");
  }
  if (t.rank == 0) {
    std::this_thread::sleep_for(t.options.grace / 10);
    t.expect(room.is_untouched(), "memory as it was", "bytes of a message that came after the error");
  }
}

void check_past_deadline(trial& t) {
  call_options late = t.hasty(7);
  late.within = clock::now() - std::chrono::seconds(1);
  const auto done = outcome_of(t.comm.all_gather({}, late));
  if (t.fails(done, errc::deadline_exceeded, "all_gather after its deadline"))
    check_says_call(t, done, "all_gather", 7);
}

void check_abort_of_gather(trial& t) {
  if (t.rank == t.size - 1) {
    std::this_thread::sleep_for(t.options.deadline / 4);
    t.comm.abort(reason());
  } else {
    says_reason(t, outcome_of(t.comm.all_gather({}, t.patient())), "an all_gather without the rank that gave up");
  }
  t.becomes_poisoned(errc::no_space);
}

void check_abort_of_exchange(trial& t) {
  bordered room(1000);
  if (t.rank == t.size - 1) {
    std::this_thread::sleep_for(t.options.deadline / 4);
    t.comm.abort(reason());
  } else {
    says_reason(t, receive(t, t.size - 1, room.inside(), t.patient(1)), "a wait for the rank that gave up");
    t.expect(room.is_untouched(), "memory as it was", "bytes that nobody sent");
  }
  t.becomes_poisoned(errc::no_space);
}

void check_cancelling(trial& t) {
  if (t.size == 1) return;
  if (t.rank == 0) {
    std::stop_source stop;
    call_options options = t.patient(1);
    options.cancel = stop.get_token();
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(t.options.deadline / 4);
      stop.request_stop();
    });
    bordered room(1000);
    t.fails(receive(t, 1, room.inside(), options), errc::cancelled, "a wait that is cancelled");
  }
  t.becomes_poisoned(errc::cancelled);
}

void check_different_sizes(trial& t) {
  if (t.size == 1) return;
  // A network that matches by order compares no sizes, so the receiver waits until its deadline.
  const bool compares = !t.comm.is_ordered();
  const errc expected = compares ? errc::communication : errc::deadline_exceeded;
  const call_options call = compares ? t.patient(1) : t.hasty(1);
  const std::vector<std::byte> bytes(16);
  bordered room(24);
  if (t.rank == 0) {
    const std::vector<outgoing> sends{{1, bytes}};
    // The send may succeed: a transport may take the message before the receiver sees its size.
    if (auto started = t.comm.start_exchange(sends, {}, call)) static_cast<void>(started->wait());
  }
  if (t.rank == 1) t.fails(receive(t, 0, room.inside(), call), expected, "a wait for 24 bytes when 16 bytes are sent");
  t.becomes_poisoned(expected);
}

}  // namespace shardmesh
