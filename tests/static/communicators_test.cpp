// SPDX-License-Identifier: Apache-2.0
// Which types are communicators.
#include <catch2/catch_test_macros.hpp>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
import shardmesh;
import shardmesh.comm;

using namespace shardmesh;

namespace {

// The smallest model: a single rank.
struct alone {
  std::string* log = nullptr;
  std::int32_t rank() const { return 0; }
  std::int32_t size() const { return 1; }
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> bytes, const call_options&) {
    return std::vector<std::vector<std::byte>>(1, std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  result<pending> start_exchange(std::span<const outgoing> sends, std::span<const incoming>, const call_options&) {
    if (!sends.empty()) return fail(errc::communication, "nobody is there").with_rank(sends.front().peer);
    return pending{};
  }
  void abort(const error& reason) { *log = reason.message; }
};

struct no_abort {
  std::int32_t rank() const;
  std::int32_t size() const;
  result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte>, const call_options&);
  result<pending> start_exchange(std::span<const outgoing>, std::span<const incoming>, const call_options&);
};

struct blocking_exchange : alone {
  result<void> start_exchange(std::span<const outgoing>, std::span<const incoming>, const call_options&);
};

struct rank_is_text : alone {
  std::string rank() const;
};

static_assert(communicator<alone>);
static_assert(communicator<any_communicator>);
static_assert(!communicator<no_abort>);
static_assert(!communicator<blocking_exchange>);
static_assert(!communicator<rank_is_text>);
static_assert(!communicator<int>);

// Five collectives, each of which starts and returns something to wait for.
struct together : alone {
  result<pending> all_gather_into(std::span<const std::byte>, std::span<std::byte>, const call_options&);
  result<pending> all_to_all(std::span<const std::byte>, std::span<std::byte>, const call_options&);
  result<pending> reduce_scatter(std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op,
                                 const call_options&);
  result<pending> all_reduce(std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op, const call_options&);
  result<pending> broadcast(std::span<const std::byte>, std::span<std::byte>, std::int32_t, const call_options&);
};

struct blocking_reduction : together {
  result<void> all_reduce(std::span<const std::byte>, std::span<std::byte>, dtype, reduce_op, const call_options&);
};

struct reduction_without_dtype : together {
  result<pending> reduce_scatter(std::span<const std::byte>, std::span<std::byte>, reduce_op, const call_options&);
};

static_assert(collective_communicator<together>);
static_assert(collective_communicator<thread_communicator>);
static_assert(collective_communicator<any_communicator>);
static_assert(!collective_communicator<alone>);
static_assert(!collective_communicator<subgroup_communicator>);
static_assert(!collective_communicator<blocking_reduction>);
static_assert(!collective_communicator<reduction_without_dtype>);
static_assert(!collective_communicator<int>);

// Functions take variables of any model, also through an owner or a reference, but no temporaries.
static_assert(std::convertible_to<alone&, communicator_ref>);
static_assert(std::convertible_to<thread_communicator&, communicator_ref>);
static_assert(std::convertible_to<any_communicator&, communicator_ref>);
static_assert(std::convertible_to<communicator_ref, communicator_ref>);
static_assert(!std::convertible_to<alone, communicator_ref>);
static_assert(!std::convertible_to<any_communicator, communicator_ref>);
static_assert(!std::convertible_to<const alone&, communicator_ref>);
static_assert(!std::convertible_to<no_abort&, communicator_ref>);
static_assert(!std::convertible_to<int&, communicator_ref>);
static_assert(std::is_trivially_copyable_v<communicator_ref> && sizeof(communicator_ref) == 2 * sizeof(void*));
static_assert(collective_communicator<communicator_ref>);
static_assert(!std::copyable<any_communicator>);
static_assert(!std::constructible_from<any_communicator, communicator_ref>);  // it owns its communicator

}  // namespace

TEST_CASE("any_communicator passes every call on") {
  std::string log;
  any_communicator c(alone{&log});
  CHECK(c.size() == 1);
  const std::vector<std::byte> bytes{std::byte{7}};
  CHECK(c.all_gather(bytes, {}).value() == std::vector<std::vector<std::byte>>(1, bytes));
  CHECK(c.start_exchange({}, {}, {}).value().done());
  const std::vector<outgoing> sends{{3, bytes}};
  CHECK(c.start_exchange(sends, {}, {}).error().ranks == std::vector<std::int32_t>{3});
  CHECK_FALSE(c.has_collectives());
  CHECK(c.all_reduce({}, {}, dtype::float32, reduce_op::sum, {}).error().code == errc::unsupported);
  alone mine{&log};
  communicator_ref(mine).abort(fail(errc::cancelled, "enough"));
  CHECK(log == "enough");
}

TEST_CASE("a reference to any communicator passes every call on, and knows what it refers to") {
  std::string log, other_log;
  alone mine{&log};
  any_communicator owning(alone{&other_log});
  const communicator_ref one = mine, other = owning;
  const std::vector<std::byte> bytes{std::byte{7}};
  CHECK(one.all_gather(bytes, {}).value() == std::vector<std::vector<std::byte>>(1, bytes));
  CHECK(one.target<alone>() == &mine);
  CHECK(one.target<thread_communicator>() == nullptr);
  CHECK(one == communicator_ref(mine));
  CHECK_FALSE(one == other);
  CHECK(other == communicator_ref(owning));
  any_communicator moved = std::move(owning);  // the owned communicator does not move
  CHECK(other == communicator_ref(moved));
  other.abort(fail(errc::cancelled, "enough"));
  CHECK(other_log == "enough");
}

TEST_CASE("a number is live for all handles of a communicator until what holds it is gone") {
  std::string log;
  alone mine{&log};                                            // the process keeps its numbers
  thread_communicator kept = thread_group(1).communicator(0);  // the group keeps its numbers
  for (const communicator_ref comm : {communicator_ref(mine), communicator_ref(kept)})
    for (const numbered_object kind : {numbered_object::subgroup, numbered_object::executor}) {
      const auto next = [&] {
        const std::vector<std::byte> offer = comm.numbers().offer(kind);
        const std::span<const std::byte> only = offer;
        return comm.numbers().choose(kind, std::span(&only, 1));
      };
      const std::uint32_t most = kind == numbered_object::subgroup ? 1023 : 1022;
      std::vector<held_number> held;
      std::set<std::uint32_t> all;
      for (std::uint32_t i = 0; i < most; ++i) {
        held.push_back(comm.numbers().hold(kind, next().value()));
        all.insert(held.back().value());
      }
      CHECK(all.size() == most);
      CHECK(*all.begin() == 1);
      CHECK(*all.rbegin() == most);
      CHECK(next().error().code == errc::unsupported);
      const std::uint32_t freed = held[500].value();
      const held_number copy = held[500];
      held[500] = {};
      CHECK(next().error().code == errc::unsupported);
      held.clear();
      CHECK(next().value() != freed);
    }
  // Two handles of one rank share the numbers.
  thread_communicator again = kept;
  const held_number one = communicator_ref(kept).numbers().hold(numbered_object::executor, 7);
  CHECK(communicator_ref(again).numbers().offer(numbered_object::executor) ==
        communicator_ref(kept).numbers().offer(numbered_object::executor));
}
