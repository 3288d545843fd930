// SPDX-License-Identifier: Apache-2.0
// Tests that the suite finds defects: each communicator with one defect fails the check for it, and only sound ones
// pass. tests/distributed/conformance_test.cpp runs the suite on our own communicators.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.conformance;
import shardmesh.test.forwarding;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

// Makes groups of `size` threads for all ranks: each rank's n-th call gets its place in the n-th group.
class group_factory {
 public:
  explicit group_factory(std::int32_t size) : size_(size) {}
  thread_communicator place(std::int32_t rank, std::size_t number) {
    const std::scoped_lock locked(lock_);
    while (groups_.size() <= number) groups_.emplace_back(size_);
    return groups_[number].communicator(rank);
  }

 private:
  std::int32_t size_;
  std::mutex lock_;
  std::vector<thread_group> groups_;
};

// The base of the models with a defect.
using sound = test::forwarding_communicator;

struct gathers_in_reverse : sound {
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    auto all = inner.all_gather(bytes, o);
    if (all) std::reverse(all->begin(), all->end());
    return all;
  }
};

struct forgets_tags : sound {
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, call_options o) {
    o.tag = 0;
    return inner.start_exchange(s, r, o);
  }
};

struct takes_16_bits_of_tags : sound {
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, call_options o) {
    o.tag &= 0xffff;
    return inner.start_exchange(s, r, o);
  }
};

struct forgets_deadlines : sound {
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, call_options o) {
    o.within = 3s;
    return inner.all_gather(bytes, o);
  }
};

// Replaces the text of every deadline's error.
template <const char* const& text>
struct says_only : sound {
  template <class T>
  static result<T> reworded(result<T> done) {
    if (done || done.error().code != errc::deadline_exceeded) return done;
    error e = std::move(done).error();
    e.message = text;
    return e;
  }
  struct rewording final : pending::operation {
    explicit rewording(pending started) : inner(std::move(started)) {}
    bool done() override { return inner.done(); }
    result<void> wait() override { return reworded(inner.wait()); }
    pending inner;
  };
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options& o) {
    return reworded(inner.all_gather(bytes, o));
  }
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    auto started = reworded(inner.start_exchange(s, r, o));
    if (!started) return started;
    return pending(std::make_unique<rewording>(*std::move(started)));
  }
};

const char* const no_tag = "rank 0 timed out after 70 ms in an all_gather, an exchange of hasty_call";
const char* const no_time = "rank 0 timed out in an all_gather, an exchange of hasty_call (tag 3) (tag 5) (tag 7)";
const char* const no_call = "rank 0 timed out after 70 ms in an all_gather, an exchange (tag 3) (tag 5) (tag 7)";
const char* const no_operation = "rank 0 timed out after 70 ms in hasty_call (tag 3) (tag 5) (tag 7)";

struct keeps_aborts_to_itself : sound {
  void abort(const error&) {}
};

struct changes_a_byte : sound {
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    auto started = inner.start_exchange(s, r, o);
    if (!started || r.empty() || r.front().bytes.size() < 100'000) return started;
    if (auto done = started->wait(); !done) return done.error();
    r.front().bytes[99'999] ^= std::byte{1};
    return pending();
  }
};

struct takes_messages_to_itself : sound {
  result<pending> start_exchange(std::span<const outgoing> s, std::span<const incoming> r, const call_options& o) {
    if (!s.empty() && s.front().peer == rank()) return pending();
    return inner.start_exchange(s, r, o);
  }
};

const conformance_options quick{.patience = 500ms, .deadline = 60ms, .grace = 300ms, .large_bytes = 1 << 20};

// The suite's report, the same on each of three ranks.
template <class Model>
conformance_report report_of() {
  const watchdog dog(120s);
  constexpr std::int32_t size = 3;
  group_factory groups(size);
  std::vector<conformance_report> all(size);
  std::vector<std::jthread> threads;
  for (std::int32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      std::size_t number = 0;
      all[static_cast<std::size_t>(rank)] = check_communicator(
          [&]() -> result<any_communicator> { return any_communicator(Model{{groups.place(rank, number++)}}); }, quick);
    });
  threads.clear();
  return all.front();
}

bool finds(const conformance_report& report, const std::string& check) {
  UNSCOPED_INFO(to_string(report));
  return std::any_of(report.problems.begin(), report.problems.end(),
                     [&](const conformance_problem& p) { return p.check.find(check) != std::string::npos; });
}

}  // namespace

TEST_CASE("a sound communicator conforms, and every check is named once") {
  const conformance_report report = report_of<gathers_in_reverse>();
  REQUIRE(report.checks.size() == conformance_checks().size());
  std::vector<std::string> names = report.checks;
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  struct plain : sound {};
  const conformance_report good = report_of<plain>();
  CHECK(to_string(good) == "all 25 checks passed");
  CHECK(good.outcome().has_value());
}

TEST_CASE("an all_gather out of rank order is found, on every rank, by name") {
  const conformance_report report = report_of<gathers_in_reverse>();
  CHECK(finds(report, "ranks are numbered from 0"));
  REQUIRE_FALSE(report.outcome().has_value());
  CHECK(report.outcome().error().code == errc::communication);
  std::vector<std::int32_t> ranks;
  for (const conformance_problem& p : report.problems)
    if (p.check.starts_with("ranks are numbered")) ranks.push_back(p.rank);
  CHECK(ranks.size() >= 1);
}

TEST_CASE("lost tags are found") {
  CHECK(finds(report_of<forgets_tags>(), "different tags do not mix"));
  CHECK(finds(report_of<takes_16_bits_of_tags>(), "different tags do not mix"));
}

TEST_CASE("deadlines that are not kept, and aborts that reach nobody, are found") {
  CHECK(finds(report_of<forgets_deadlines>(), "named at the deadline"));
  const conformance_report aborts = report_of<keeps_aborts_to_itself>();
  CHECK(finds(aborts, "an abort ends an all_gather"));
  CHECK(finds(aborts, "an abort ends an exchange"));
}

TEST_CASE("a deadline's error without the operation, the call, the tag, or the time waited is found") {
  for (const conformance_report& report :
       {report_of<says_only<no_tag>>(), report_of<says_only<no_call>>(), report_of<says_only<no_operation>>()}) {
    CHECK(finds(report, "named at the deadline"));
    CHECK(finds(report, "a deadline of an exchange fails every rank"));
    CHECK(finds(report, "a deadline that has passed fails at once"));
  }
  const conformance_report without_time = report_of<says_only<no_time>>();
  CHECK(finds(without_time, "named at the deadline"));
  CHECK(finds(without_time, "a deadline of an exchange fails every rank"));
}

TEST_CASE("a message that is altered is found") {
  CHECK(finds(report_of<changes_a_byte>(), "messages of any size arrive whole"));
}

TEST_CASE("what must be refused and is not is found") {
  const conformance_report report = report_of<takes_messages_to_itself>();
  CHECK(finds(report, "are refused by name"));
  CHECK(std::all_of(report.problems.begin(), report.problems.end(), [](const conformance_problem& p) {
    return p.expected.find("a message to oneself fails with") != std::string::npos && p.found == "success";
  }));
}

TEST_CASE("a problem is told in one line") {
  CHECK(to_string(conformance_problem{"messages arrive", 2, "8 bytes", "none"}) ==
        "rank 2: messages arrive: expected 8 bytes, found none");
}
