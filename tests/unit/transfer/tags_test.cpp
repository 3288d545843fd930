// SPDX-License-Identifier: Apache-2.0
// Tests that no two live subgroups or executors share a peer and a tag, however many were made and released before.
// Random members make and destroy random objects over a communicator that logs the tags of messages.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.transfer;

using namespace shardmesh;

namespace {

using message_log = std::set<std::pair<std::int32_t, std::uint32_t>>;  // peer, tag

// A rank of a thread_group that logs its messages. It has no object numbers of its own.
class noted {
 public:
  noted(thread_communicator comm, message_log* log) : comm_(std::move(comm)), log_(log) {}
  std::int32_t rank() const { return comm_.rank(); }
  std::int32_t size() const { return comm_.size(); }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& call) {
    return comm_.all_gather(bytes, call);
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming> receives,
                                 const call_options& call) {
    for (const outgoing& m : sends) log_->emplace(m.peer, call.tag);
    for (const incoming& m : receives) log_->emplace(m.peer, call.tag);
    return comm_.start_exchange(sends, receives, call);
  }
  void abort(const error& reason) { comm_.abort(reason); }

 protected:
  thread_communicator comm_;
  message_log* log_;
};

// The same, with the object numbers of its group.
class numbered : public noted {
 public:
  using noted::noted;
  object_numbers numbers() const { return comm_.numbers(); }
};

// A live object of a rank, with the peers and tags of its messages.
struct live_object {
  std::optional<any_communicator> group;
  std::optional<executor> runs;
  message_log messages;
  bool is_kept = false;
};

transfer_plan gathering(std::int32_t ranks) {
  const std::int64_t sizes[] = {ranks};
  const device_mesh mesh = device_mesh::make(sizes).value();
  const auto held = [&](placement how) {
    return distribute(layout::make(mesh, {how}, extents{ranks}).value()).value();
  };
  return plan({{held(placement::shard(0)), held(placement::replicate()), dtype::int32, dtype::int32}}).value();
}

[[nodiscard]] std::string run_once(executor& runs, std::int32_t rank, std::int32_t size) {
  std::int32_t mine = rank + 100;
  std::vector<std::int32_t> all(static_cast<std::size_t>(size));
  const const_tensor_binding from{{{reinterpret_cast<std::byte*>(&mine), dtype::int32, {}, {1}, {1}}}};
  const tensor_binding to{{{reinterpret_cast<std::byte*>(all.data()), dtype::int32, {}, {size}, {1}}}};
  if (auto done = runs.run(std::span(&from, 1), std::span(&to, 1)); !done) return to_string(done.error());
  for (std::int32_t r = 0; r < size; ++r)
    if (all[static_cast<std::size_t>(r)] != r + 100) return "a wrong value";
  return {};
}

// Sends a message to each other member.
[[nodiscard]] std::string greet(any_communicator& group) {
  const std::byte mine{1};
  std::vector<std::byte> theirs(static_cast<std::size_t>(group.size()));
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  for (std::int32_t peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    sends.push_back({peer, {&mine, 1}});
    receives.push_back({peer, {&theirs[static_cast<std::size_t>(peer)], 1}});
  }
  auto started = group.start_exchange(sends, receives, {});
  if (!started) return to_string(started.error());
  const auto done = started->wait();
  return done ? std::string() : to_string(done.error());
}

constexpr std::int32_t ranks = 4;

// Runs the same steps on every rank. Each member releases an object at a step of its own.
template <class Model>
std::string live_apart(const thread_communicator& comm, std::uint64_t seed, int steps) {
  message_log log;
  Model model(comm, &log);
  const communicator_ref whole = model;
  std::mt19937_64 random(seed), own(seed + static_cast<std::uint64_t>(comm.rank()));
  std::vector<live_object> live;
  for (int step = 0; step < steps; ++step) {
    // The first objects are long-lived. Every rank draws the same numbers, even if it takes no part.
    const std::uint64_t members_drawn = random(), kind = random() % 3, order = random();
    const bool is_kept = step < 20;
    std::vector<std::int32_t> members;
    for (std::int32_t r = 0; r < ranks; ++r)
      if ((members_drawn >> r & 1) != 0) members.push_back(r);
    if (members.size() < 2) members = {0, 1, 2, 3};
    std::shuffle(members.begin(), members.end(), std::mt19937_64(order));
    if (std::find(members.begin(), members.end(), comm.rank()) == members.end()) continue;
    live_object made;
    made.is_kept = is_kept;
    log.clear();
    std::string wrong;
    if (kind == 0 && members.size() == ranks) {  // an executor of all ranks
      auto runs = executor::make(gathering(ranks), whole, {}, {.in_place = false});
      if (!runs) return to_string(runs.error());
      made.runs.emplace(*std::move(runs));
      log.clear();
      wrong = run_once(*made.runs, comm.rank(), ranks);
    } else {
      auto group = subgroup(whole, rank_group::make(members).value());
      if (!group) return to_string(group.error());
      made.group.emplace(*std::move(group));
      if (kind == 1) {
        auto runs = executor::make(gathering(made.group->size()), *made.group, {}, {.in_place = false});
        if (!runs) return to_string(runs.error());
        made.runs.emplace(*std::move(runs));
      }
      log.clear();
      wrong = greet(*made.group);
      if (wrong.empty() && made.runs) wrong = run_once(*made.runs, made.group->rank(), made.group->size());
    }
    if (!wrong.empty()) return wrong;
    made.messages = log;
    if (made.messages.empty()) return "no message was noted";
    for (const live_object& other : live)
      for (const auto& message : made.messages)
        if (other.messages.contains(message))
          return "step " + std::to_string(step) + ": two live objects have messages with rank " +
                 std::to_string(message.first) + " of tag " + std::to_string(message.second);
    live.push_back(std::move(made));
    // Executors end before their groups.
    while (live.size() > 40) {
      const std::size_t at = own() % live.size();
      if (live[at].is_kept) continue;
      live[at].runs.reset();
      live[at] = std::move(live.back());
      live.pop_back();
    }
  }
  return {};
}

std::uint64_t seed_of_run() {
  if (const char* const text = std::getenv("SHARDMESH_SEED")) return std::strtoull(text, nullptr, 10);
  return std::random_device{}();
}

template <class Model>
void check_disjoint() {
  const watchdog dog{std::chrono::seconds(300)};
  const thread_group group(ranks);
  const std::uint64_t seed = seed_of_run();
  INFO("SHARDMESH_SEED=" << seed);
  const int steps = random_seed::runs_are_long() ? 30'000 : 4'000;
  std::vector<std::string> wrong(ranks);
  std::vector<std::jthread> threads;
  for (std::int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const thread_communicator comm = group.communicator(rank);
      wrong[static_cast<std::size_t>(rank)] = live_apart<Model>(comm, seed, steps);
      if (!wrong[static_cast<std::size_t>(rank)].empty()) group.leave(rank);
    });
  threads.clear();
  CHECK(wrong == std::vector<std::string>(ranks));
}

}  // namespace

TEST_CASE("no two live subgroups or executors share a peer and a tag") {
  check_disjoint<numbered>();
}

TEST_CASE("nor do they on a communicator that keeps no numbers") {
  check_disjoint<noted>();
}

TEST_CASE("the subgroup and the executor that find no free number are refused on every member") {
  const watchdog dog{std::chrono::seconds(120)};
  const thread_group group(2);
  std::vector<std::string> wrong(2);
  std::vector<std::jthread> threads;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      wrong[static_cast<std::size_t>(rank)] = [&]() -> std::string {
        thread_communicator comm = group.communicator(rank);
        std::vector<any_communicator> groups;
        for (int i = 0; i < 1023; ++i) {
          auto made = subgroup(comm, rank_group::world(2));
          if (!made) return to_string(made.error());
          groups.push_back(*std::move(made));
        }
        const auto none = subgroup(comm, rank_group::world(2));
        if (none || none.error().code != errc::unsupported) return "a subgroup without a number";
        groups.erase(groups.begin() + 300);
        if (auto last = subgroup(comm, rank_group::world(2)); !last) return to_string(last.error());
        std::vector<executor> all;
        for (int i = 0; i < 1022; ++i) {
          auto made = executor::make(gathering(2), comm);
          if (!made) return to_string(made.error());
          all.push_back(*std::move(made));
        }
        const auto no_executor = executor::make(gathering(2), comm);
        if (no_executor || no_executor.error().code != errc::unsupported) return "an executor without a number";
        if (auto other = executor::make(gathering(2), groups[0]); !other) return to_string(other.error());
        all.pop_back();
        if (auto last = executor::make(gathering(2), comm); !last) return to_string(last.error());
        return {};
      }();
      if (!wrong[static_cast<std::size_t>(rank)].empty()) group.leave(rank);
    });
  threads.clear();
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("a subgroup refuses tags that would reach into another one's") {
  const thread_group group(2);
  std::vector<std::jthread> threads;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      thread_communicator comm = group.communicator(rank);
      auto pair = subgroup(comm, rank_group::world(2)).value();
      const std::byte one{1};
      const outgoing message{1 - rank, {&one, 1}};
      for (const std::uint32_t tag : {1023U << 12, 1U << 22, ~0U}) {
        const auto refused = pair.start_exchange(std::span(&message, 1), {}, {.tag = tag});
        if (refused || refused.error().code != errc::invalid_argument) std::abort();
      }
    });
}
