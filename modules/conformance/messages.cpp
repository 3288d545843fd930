// SPDX-License-Identifier: Apache-2.0
// Checks of successful exchanges, and of rejected calls.
module;
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
module shardmesh.conformance;

import :trial;

namespace shardmesh {
namespace {

using gathered = result<std::vector<std::vector<std::byte>>>;

// Expects that every rank r contributed message number `number`, of `size_of(r)` bytes.
bool gathered_well(trial& t, const gathered& all, std::uint32_t number,
                   function_ref<std::size_t(std::int32_t)> size_of) {
  if (!t.succeeds(all ? result<void>{} : result<void>(all.error()), "all_gather")) return false;
  if (!t.expect(all->size() == static_cast<std::size_t>(t.size), fmt::format("{} parts", t.size),
                fmt::format("{} parts", all->size())))
    return false;
  for (std::int32_t from = 0; from < t.size; ++from) {
    const auto& part = (*all)[static_cast<std::size_t>(from)];
    if (!t.expect(part == message_bytes(from, 0, number, size_of(from)),
                  fmt::format("the {} bytes of rank {} in place {}", size_of(from), from, from),
                  fmt::format("{} other bytes", part.size())))
      return false;
  }
  return true;
}

bool gather(trial& t, std::uint32_t number, function_ref<std::size_t(std::int32_t)> size_of, std::uint32_t tag = 0) {
  return gathered_well(t, t.comm.all_gather(message_bytes(t.rank, 0, number, size_of(t.rank)), t.patient(tag)), number,
                       size_of);
}

}  // namespace

void check_ranks(trial& t) {
  if (!t.expect(t.size >= 1 && t.rank >= 0 && t.rank < t.size, "a rank of 0 .. size() - 1",
                fmt::format("rank {} of {}", t.rank, t.size)))
    return;
  // Each rank sends its own bytes, so a wrong order or a wrong number of ranks shows on some rank.
  gather(t, 1, [](std::int32_t rank) { return static_cast<std::size_t>(rank) + 1; });
}

void check_gather_lengths(trial& t) {
  std::uint32_t number = 0;
  for (const std::size_t unit :
       {std::size_t{0}, std::size_t{1}, std::size_t{700}, std::size_t{9000}, std::size_t{100'003}})
    if (!gather(t, ++number, [&](std::int32_t rank) { return static_cast<std::size_t>(rank) * unit; })) return;
}

void check_many_gathers(trial& t) {
  for (std::uint32_t round = 0; round < 50; ++round) {
    if (static_cast<std::int32_t>(round) % t.size == t.rank) std::this_thread::yield();
    if (!gather(t, round, [&](std::int32_t rank) { return (static_cast<std::size_t>(rank) + round) % 5; })) return;
  }
}

void check_no_messages(trial& t) {
  auto nothing = t.comm.start_exchange({}, {}, t.patient());
  if (!t.succeeds(nothing ? result<void>{} : result<void>(nothing.error()), "start_exchange")) return;
  t.expect(nothing->done(), "done() at once", "not done");
  t.succeeds(nothing->wait(), "wait");
}

void check_sizes(trial& t) {
  std::uint32_t number = 0;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{63}, std::size_t{4096}, std::size_t{65'537}, std::size_t{300'000}}) {
    // Every direction has a different size.
    auto e = start_between_all(
        t, ++number,
        [&](std::int32_t from, std::int32_t to) {
          return size + static_cast<std::size_t>(from) * 3 + static_cast<std::size_t>(to);
        },
        5);
    if (!e || !finish(t, *e, fmt::format("messages of about {} bytes", size))) return;
  }
}

void check_call_order(trial& t) {
  std::vector<started_exchange> running;
  for (std::uint32_t number = 0; number < 8; ++number) {
    auto e =
        start_between_all(t, number, [&](std::int32_t, std::int32_t) { return std::size_t{1000} + 7 * number; }, 9);
    if (!e) return;
    running.push_back(*std::move(e));
  }
  // Odd ranks wait for the last exchange first.
  if (t.rank % 2 == 1) std::reverse(running.begin(), running.end());
  for (started_exchange& e : running)
    if (!finish(t, e, "one of 8 exchanges of one tag")) return;
}

void check_tags(trial& t) {
  if (t.comm.is_ordered()) return;  // it matches by start order, which all ranks must keep
  // All 32 bits count: executors and subgroups use the upper ones.
  std::vector<std::uint32_t> tags{0, 1, 1U << 12, 1U << 22, 1U << 31, 0xffff'fffe};
  if (t.rank % 2 == 1) std::reverse(tags.begin(), tags.end());
  std::vector<started_exchange> running;
  for (const std::uint32_t tag : tags) {
    auto e = start_between_all(t, tag, [](std::int32_t, std::int32_t) { return std::size_t{5000}; }, tag);
    if (!e) return;
    running.push_back(*std::move(e));
  }
  for (started_exchange& e : running)
    if (!finish(t, e, "one of 6 exchanges of different tags")) return;
}

void check_gather_beside_exchange(trial& t) {
  auto e = start_between_all(t, 3, [](std::int32_t, std::int32_t) { return std::size_t{100}; }, 0);
  if (!e) return;
  if (gather(t, 4, [](std::int32_t) { return std::size_t{100}; })) finish(t, *e, "the exchange beside an all_gather");
}

void check_few_ranks(trial& t) {
  // One message, from the first to the last rank. The others make no call.
  const std::int32_t last = t.size - 1;
  if (t.rank == 0 || t.rank == last) {
    auto e = start_between_all(
        t, 1,
        [&](std::int32_t from, std::int32_t to) {
          return from == 0 && to == last ? std::size_t{70'000} : std::size_t{0};
        },
        2);
    if (!e || !finish(t, *e, "a message between two of the ranks")) return;
  }
  t.meet("after it");
}

void check_polling(trial& t) {
  auto e = start_between_all(t, 1, [](std::int32_t, std::int32_t) { return std::size_t{150'000}; }, 3);
  if (!e) return;
  const auto end = std::chrono::steady_clock::now() + t.options.patience;
  while (!e->work.done()) {
    if (!t.expect(std::chrono::steady_clock::now() < end, "done() after a while", "not done")) return;
    std::this_thread::yield();
  }
  finish(t, *e, "the exchange that is done");
}

void check_dropping(trial& t) {
  auto e = start_between_all(t, 1, [](std::int32_t, std::int32_t) { return std::size_t{90'000}; }, 4);
  if (!e) return;
  {
    const pending dropped = std::move(e->work);
  }
  arrived(t, *e, "after the destructor of pending");
}

void check_large_message(trial& t) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(t.options.large_bytes, 1));
  auto e = start_between_all(
      t, 1, [&](std::int32_t from, std::int32_t to) { return to == (from + 1) % t.size ? size : std::size_t{0}; }, 6);
  if (e) finish(t, *e, "a large message");
}

void check_refusals(trial& t) {
  std::vector<std::byte> bytes(8);
  const auto refuses = [&](const char* what, std::int32_t peer, std::vector<outgoing> sends,
                           std::vector<incoming> receives) {
    const auto started = t.comm.start_exchange(sends, receives, t.patient());
    if (t.fails(started ? result<void>{} : result<void>(started.error()), errc::invalid_argument, what))
      t.expect(started.error().ranks == std::vector{peer}, fmt::format("{} names rank {}", what, peer),
               fmt::format("ranks {}", fmt::join(started.error().ranks, ", ")));
  };
  refuses("a message to oneself", t.rank, {{t.rank, bytes}}, {});
  refuses("a message from oneself", t.rank, {}, {{t.rank, bytes}});
  refuses("a message to a rank beyond the last", t.size, {{t.size, bytes}}, {});
  refuses("a message from a rank below 0", -1, {}, {{-1, bytes}});
  if (t.size > 1) {
    const std::int32_t peer = (t.rank + 1) % t.size;
    refuses("two messages to one peer", peer, {{peer, bytes}, {peer, bytes}}, {});
    refuses("two messages from one peer", peer, {}, {{peer, bytes}, {peer, bytes}});
    refuses("an empty message to a peer", peer, {{peer, {}}}, {});
    refuses("an empty message from a peer", peer, {}, {{peer, {}}});
  }
  // Nothing was started, so the communicator still works.
  auto e = start_between_all(t, 2, [](std::int32_t, std::int32_t) { return std::size_t{8}; }, 0);
  if (e) finish(t, *e, "an exchange after refused ones");
}

}  // namespace shardmesh
