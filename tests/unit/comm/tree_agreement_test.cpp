// SPDX-License-Identifier: Apache-2.0
// The agreement of many ranks along a tree: every rank gets what an all_gather of all ballots would give it.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <dice.hpp>
#include <optional>
#include <random_ballots.hpp>
#include <random_seed.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
import shardmesh.comm;

using namespace shardmesh;
using namespace std::chrono_literals;

namespace {

using ways = std::pair<result<agreement_notes>, result<agreement_notes>>;

std::vector<agreement_record> records_of(const random_ballot& ballot) {
  std::vector<agreement_record> made;
  for (const auto& [key, text] : ballot.records) made.push_back({key, text});
  return made;
}

// Agrees in both ways: by an all_gather, and along the tree.
ways agree_twice(communicator_ref comm, const random_ballots& ballots) {
  const random_ballot& mine = ballots.of_rank[static_cast<std::size_t>(comm.rank())];
  const std::vector<agreement_record> records = records_of(mine);
  const digest128 digest = digest_of(records, ballots.ordered);
  const error trouble = fail(errc::io, "no luck").with_key("of rank " + std::to_string(comm.rank()));
  const agree_options options{
      .what = "tensors",
      .ordered = ballots.ordered,
      .note = mine.note,
      .problem = mine.has_problem ? &trouble : nullptr,
      .combine = ballots.combines != mine.combines_otherwise ? note_combiner(combine_sorted) : note_combiner()};
  const call_options call = call_options{}.named(mine.call);
  auto gathered = detail::agree_by_gather(comm, digest, [&] { return records; }, options, call);
  return {std::move(gathered), detail::agree_along_tree(comm, digest, [&] { return records; }, options, call)};
}

bool is_equal(const result<agreement_notes>& a, const result<agreement_notes>& b) {
  if (a.has_value() != b.has_value()) return false;
  return a ? *a == *b : a.error() == b.error();
}

std::string text_of(const result<agreement_notes>& one) {
  return one ? "agreed" : to_string(one.error());
}

// The error of every rank in a group of which rank r calls `body`. Fails the test unless all have the same.
template <class Body>
error common_error(std::int32_t ranks, const Body& body) {
  std::vector<std::optional<error>> got(static_cast<std::size_t>(ranks));
  static_cast<void>(run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    if (const auto done = body(comm); !done) got[static_cast<std::size_t>(comm.rank())] = done.error();
    return {};
  }));
  for (const auto& one : got) {
    REQUIRE(one.has_value());
    CHECK(*one == *got.front());
  }
  return *got.front();
}

}  // namespace

TEST_CASE("ranks on a tree get the notes or the error that an all_gather gives them") {
  const watchdog dog(300s);
  for (const std::uint64_t seed : random_seed::seeds(60)) {
    INFO("SHARDMESH_SEED=" << seed);
    dice die(seed);
    const auto ranks = static_cast<std::int32_t>(1 + die.below(30));
    const random_ballots ballots(die, ranks);
    std::vector<std::string> wrong(static_cast<std::size_t>(ranks)), errors(wrong);
    const auto ran = run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
      const auto place = static_cast<std::size_t>(comm.rank());
      const auto [gathered, told] = agree_twice(comm, ballots);
      if (!is_equal(gathered, told)) wrong[place] = text_of(gathered) + " is not " + text_of(told);
      errors[place] = text_of(told);
      // The communicator still works.
      const auto met = comm.all_gather({}, {});
      return met ? result<void>() : result<void>(met.error());
    });
    INFO((ran ? "" : to_string(ran.error())));
    CHECK(ran);
    CHECK(wrong == std::vector<std::string>(wrong.size()));
    CHECK(errors == std::vector<std::string>(errors.size(), errors.front()));
  }
}

TEST_CASE("the lowest rank with a problem is reported, wherever it is in the tree") {
  const watchdog dog(120s);
  constexpr std::int32_t ranks = 23;
  for (std::int32_t first = 0; first < ranks; ++first) {
    const error found = common_error(ranks, [&](any_communicator& comm) {
      error mine = fail(errc::no_space, "the disk of rank " + std::to_string(comm.rank()) + " is full");
      mine.others = {fail(errc::io, "another problem")};
      mine.more = 7;
      const agree_options options{.what = "tensors", .problem = comm.rank() >= first ? &mine : nullptr};
      return detail::agree_along_tree(comm, {}, [] { return std::vector<agreement_record>(); }, options, {});
    });
    CHECK(found.code == errc::no_space);
    CHECK(found.message == "the disk of rank " + std::to_string(first) + " is full");
    CHECK(found.ranks == std::vector<std::int32_t>{first});
    CHECK(found.problem_count() == 9);
  }
}

TEST_CASE("forty ranks that disagree get an error in the words of an all_gather") {
  const watchdog dog(60s);
  const error found = common_error(40, [](any_communicator& comm) {
    const std::vector<agreement_record> mine{{"a", "1"}, {"b", comm.rank() == 33 ? "3" : "2"}};
    return agree(comm, mine, {.what = "tensors"});
  });
  CHECK(found.message ==
        "ranks disagree on 1 of 2 tensors: 'b' is 2 on ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and "
        "23 more, 3 on rank 33");
  CHECK(found.ranks == std::vector<std::int32_t>{33});
}

TEST_CASE("of more than 64 different descriptions the first are compared, and the ranks of the others are counted") {
  const watchdog dog(60s);
  const error found = common_error(80, [](any_communicator& comm) {
    const std::vector<agreement_record> mine{{"a", std::to_string(comm.rank())}};
    return agree(comm, mine, {.what = "tensors"});
  });
  CHECK(found.code == errc::disagreement);
  CHECK(found.message.starts_with("ranks disagree on 1 of 1 tensors: 'a' is 0 on rank 0, 1 on rank 1, "));
  CHECK(found.message.ends_with(", 63 on rank 63; the descriptions of 16 further ranks are not compared"));
}

TEST_CASE("other bytes than a ballot are no ballot, and no rank waits for their sender") {
  const watchdog dog(30s);
  const error found = common_error(6, [](any_communicator& comm) -> result<void> {
    if (comm.rank() == 5) {  // a child of rank 1
      const std::vector<std::byte> other(64);
      std::vector<std::byte> answer(16);
      const outgoing send{1, other};
      const incoming receive{1, answer};
      return detail::move_messages(comm, {&send, 1}, {&receive, 1}, {.tag = detail::tree_tag});
    }
    const auto done =
        detail::agree_along_tree(comm, {}, [] { return std::vector<agreement_record>(); }, {.what = "tensors"}, {});
    return done ? result<void>() : result<void>(done.error());
  });
  CHECK(found.message == "a rank is in another call while the others compare tensors (tag 4094)");
  CHECK(found.ranks == std::vector<std::int32_t>{5});
  CHECK(found.expected == "a ballot");
  CHECK(found.found == "64 bytes that begin with 0000000000000000");
}

TEST_CASE("a ballot that names a problem of a rank elsewhere in the tree ends the agreement at once") {
  const watchdog dog(30s);
  for (const std::int64_t in_trouble : {3, 6, 100}) {  // a sibling's, no rank of the group, and none by far
    const error found = common_error(6, [&](any_communicator& comm) -> result<void> {
      if (comm.rank() == 5) {  // a child of rank 1
        detail::wire_writer out;
        out.number(0x6565'7274'6d73);
        out.digest({});
        out.digest({});
        for (int flag = 0; flag < 5; ++flag) out.flag(flag != 3);  // the fourth: it combines notes
        out.number(in_trouble);
        std::vector<std::byte> ballot = std::move(out).take();
        ballot.resize(64);
        std::vector<std::byte> answer(16);
        const outgoing send{1, ballot};
        const incoming receive{1, answer};
        return detail::move_messages(comm, {&send, 1}, {&receive, 1}, {.tag = detail::tree_tag});
      }
      const auto done =
          detail::agree_along_tree(comm, {}, [] { return std::vector<agreement_record>(); }, {.what = "tensors"}, {});
      return done ? result<void>() : result<void>(done.error());
    });
    CHECK(found.code == errc::disagreement);
    CHECK(found.ranks == std::vector<std::int32_t>{5});
    CHECK(found.expected == "a ballot");
  }
}

TEST_CASE("a ballot that does not end in zeros is no ballot") {
  const watchdog dog(30s);
  for (const std::size_t changed : {std::size_t{63}, std::size_t{60}}) {
    const error found = common_error(6, [&](any_communicator& comm) -> result<void> {
      if (comm.rank() == 5) {  // a child of rank 1
        detail::wire_writer out;
        out.number(0x6565'7274'6d73);
        out.digest({});
        out.digest({});
        for (int flag = 0; flag < 5; ++flag) out.flag(flag < 2);
        out.number(INT32_MAX);  // no rank is in trouble
        std::vector<std::byte> ballot = std::move(out).take();
        ballot.resize(64);
        ballot[changed] = std::byte{1};
        std::vector<std::byte> answer(16);
        const outgoing send{1, ballot};
        const incoming receive{1, answer};
        return detail::move_messages(comm, {&send, 1}, {&receive, 1}, {.tag = detail::tree_tag});
      }
      const auto done =
          detail::agree_along_tree(comm, {}, [] { return std::vector<agreement_record>(); }, {.what = "tensors"}, {});
      return done ? result<void>() : result<void>(done.error());
    });
    CHECK(found.ranks == std::vector<std::int32_t>{5});
    CHECK(found.expected == "a ballot");
  }
}

TEST_CASE("ranks that differ in whether they combine their notes get one error, and none waits") {
  const watchdog dog(30s);
  for (const std::int32_t ranks : {4, 20}) {
    const error found = common_error(ranks, [&](any_communicator& comm) {
      agree_options options{.note = std::vector<std::byte>(static_cast<std::size_t>(comm.rank()))};
      if (comm.rank() == ranks - 1) options.combine = combine_sorted;
      return agree(comm, std::span<const agreement_record>(), options, {.name = "save"});
    });
    INFO(to_string(found));
    CHECK(found.code == errc::disagreement);
    CHECK(found.ranks == std::vector<std::int32_t>{ranks - 1});
    CHECK(found.message.starts_with("ranks are in different calls: ranks 0, 1, 2"));
    CHECK(found.message.find(" called save (separate notes), rank " + std::to_string(ranks - 1) +
                             " called save (combined notes)") != std::string::npos);
  }
}

TEST_CASE("if a rank of many does not arrive, the deadline ends the wait of every other rank with one error") {
  const watchdog dog(60s);
  constexpr std::int32_t ranks = 23, absent = 17;
  std::vector<std::optional<error>> got(ranks);
  static_cast<void>(run_ranks(ranks, [&](any_communicator& comm) -> result<void> {
    if (comm.rank() == absent) {
      while (comm.start_exchange({}, {}, {})) std::this_thread::sleep_for(1ms);
      return {};
    }
    const auto done = agree(comm, std::span<const agreement_record>(), {}, {.within = 200ms, .name = "save"});
    if (!done) got[static_cast<std::size_t>(comm.rank())] = done.error();
    return {};
  }));
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    if (rank == absent) continue;
    const std::optional<error>& one = got[static_cast<std::size_t>(rank)];
    REQUIRE(one.has_value());
    INFO(to_string(*one));
    CHECK(one->code == errc::deadline_exceeded);
    CHECK(one->message.find("an exchange of save") != std::string::npos);
    CHECK(*one == *got.front());
  }
}

TEST_CASE("a rank of many that is cancelled ends the agreement of all") {
  const watchdog dog(60s);
  const error found = common_error(23, [](any_communicator& comm) {
    std::stop_source stop;
    if (comm.rank() == 9) stop.request_stop();
    return agree(comm, std::span<const agreement_record>(), {}, {.cancel = stop.get_token()});
  });
  CHECK(found.code == errc::cancelled);
  CHECK(found.ranks == std::vector<std::int32_t>{9});
}
