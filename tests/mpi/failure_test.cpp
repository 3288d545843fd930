// SPDX-License-Identifier: Apache-2.0
// Faults over MPI give every rank an error, in time, and leave memory unchanged. Dead processes are in faults.py;
// requirements of any transport are in tests/distributed/conformance_test.cpp.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "world.hpp"

import shardmesh.mpi;

using namespace shardmesh;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

const std::vector<mpi_options> modes = {{}, {.read_peer_memory = false, .chunk_bytes = 64 << 10}};

mpi_communicator open(const mpi_options& options = {}) {
  return mpi_communicator::from_handle(world_handle(), options).value();
}

call_options within(double seconds, std::uint32_t tag = 0) {
  return {.within = in_seconds(seconds), .tag = tag};
}

result<void> exchange(mpi_communicator& comm, std::vector<outgoing> sends, std::vector<incoming> receives,
                      const call_options& options) {
  auto work = comm.start_exchange(sends, receives, options);
  if (!work) return work.error();
  return work->wait();
}

std::string text_of(const result<void>& r) {
  return r ? "no error" : to_string(r.error());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

static_assert(communicator<mpi_communicator>);
static_assert(std::is_copy_constructible_v<mpi_communicator> && !std::is_default_constructible_v<mpi_communicator>);
static_assert(!std::is_invocable_v<decltype(mpi_communicator::from_handle), void*, mpi_options>);

TEST_CASE("rank and size are those of MPI") {
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const mpi_communicator comm = open();
  CHECK(comm.rank() == rank);
  CHECK(comm.size() == size);
  CHECK(comm.status());
  CHECK(mpi_communicator::world().value().size() == size);
}

TEST_CASE("ranks of one machine read each other's memory where the system lets them") {
  const mpi_communicator comm = open();
  if (comm.readable_peers() != comm.size() - 1)
    WARN("this system does not let processes read each other's memory: messages are staged");
  CHECK((comm.readable_peers() == comm.size() - 1 || comm.readable_peers() == 0));
}

TEST_CASE("a communicator of the caller keeps its own order of ranks") {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  auto comm = mpi_communicator::from_handle(MPI_Comm_c2f(reversed)).value();
  MPI_Comm_free(&reversed);  // it was duplicated
  CHECK(comm.rank() == size - 1 - rank);
  const auto all = comm.all_gather(message_bytes(rank, 0, 0, 10), within(30)).value();
  for (int i = 0; i < size; ++i) CHECK(all[static_cast<std::size_t>(i)] == message_bytes(size - 1 - i, 0, 0, 10));
}

TEST_CASE("what is not an MPI communicator is refused") {
  const auto none = mpi_communicator::from_handle(MPI_Comm_c2f(MPI_COMM_NULL));
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::invalid_argument);
  CHECK_THAT(to_string(none.error()), ContainsSubstring("not the Fortran handle"));
  const auto never = mpi_communicator::from_handle(123456);
  REQUIRE_FALSE(never);
  const auto zero = mpi_communicator::from_handle(world_handle(), {.chunk_bytes = 0});
  REQUIRE_FALSE(zero);
  CHECK_THAT(to_string(zero.error()),
             ContainsSubstring("chunk_bytes") && ContainsSubstring("1 to 1073741824, found 0"));
}

TEST_CASE("messages to oneself, to nobody, twice or empty are errors that name the rank and start nothing") {
  mpi_communicator comm = open();
  std::vector<std::byte> bytes(10);
  const auto refused = [&](std::vector<outgoing> sends, std::vector<incoming> receives, const std::string& text) {
    const auto done = exchange(comm, std::move(sends), std::move(receives), within(30));
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::invalid_argument);
    CHECK_THAT(to_string(done.error()), ContainsSubstring(text));
  };
  const std::string me = "rank " + std::to_string(comm.rank());
  refused({{comm.rank(), bytes}}, {}, me + " sends to itself");
  refused({}, {{comm.rank(), bytes}}, me + " receives from itself");
  refused({{comm.size(), bytes}}, {}, "sends to rank " + std::to_string(comm.size()) + ", but the group has");
  refused({}, {{-1, bytes}}, "receives from rank -1");
  if (comm.size() > 1) {
    const std::int32_t peer = (comm.rank() + 1) % comm.size();
    refused({{peer, {}}}, {}, "sends to rank " + std::to_string(peer) + ", but the message is empty");
    refused({{peer, bytes}, {peer, bytes}}, {}, "sends to rank " + std::to_string(peer) + " twice");
  }
  call_options with_stream = within(30);
  with_stream.stream.handle = &bytes;
  const auto streamed = comm.start_exchange({}, {}, with_stream);
  REQUIRE_FALSE(streamed);
  CHECK(streamed.error().code == errc::unsupported);
  CHECK(comm.all_gather(bytes, within(30)));  // still works
}

TEST_CASE("a message of another size than expected gives all ranks the same error with ranks and sizes") {
  for (const mpi_options& options : modes)
    for (const std::size_t size : {std::size_t{100}, std::size_t{100'000}}) {
      mpi_communicator comm = open(options);
      if (comm.size() == 1) return;
      std::vector<std::byte> bytes(size + 4);
      result<void> done;
      if (comm.rank() == 0)
        done = exchange(comm, {{1, std::span(bytes).first(size)}}, {}, within(20, 5));
      else if (comm.rank() == 1)
        done = exchange(comm, {}, {{0, bytes}}, within(20, 5));
      else
        done = exchange(comm, {}, {{0, bytes}}, within(20, 6));  // never sent
      REQUIRE_FALSE(done);
      CHECK(done.error().code == errc::communication);
      CHECK(to_string(done.error()) ==
            "a message from rank 0 to rank 1 has different sizes on the two sides (tag 5) (ranks 0, 1): expected " +
                std::to_string(size + 4) + " bytes by the receiver, found " + std::to_string(size) + " bytes sent");
    }
}

TEST_CASE("an abort reaches ranks in an exchange, in an all_gather and in their next call, with its text") {
  for (const mpi_options& options : modes) {
    mpi_communicator comm = open(options);
    if (comm.size() == 1) return;
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::byte> bytes(1 << 20);
    const error reason = fail(errc::shape_mismatch, "shards differ")
                             .with_key("layers.0.weight")
                             .with_box({{4, 0}, {2, 8}})
                             .with_values("[6, 8]", "[2, 8]")
                             .with_hint("look at rank 0");
    result<void> done;
    if (comm.rank() == 0)
      comm.abort(reason);
    else if (comm.rank() == 1)
      done = exchange(comm, {{0, bytes}}, {}, {});
    else if (comm.rank() == 2) {
      const auto all = comm.all_gather(bytes, {});
      done = all ? result<void>() : all.error();
    } else {
      while (comm.status()) std::this_thread::yield();
    }
    if (comm.rank() == 0 || comm.rank() > 2) done = exchange(comm, {}, {}, {});
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::shape_mismatch);
    CHECK(to_string(done.error()) ==
          "layers.0.weight: shards differ in [4:6, 0:8) (rank 0): expected [6, 8], found [2, 8]; look at rank 0");
    CHECK(text_of(comm.status()) == text_of(done));
    CHECK_FALSE(comm.all_gather({}, within(20)));
    CHECK(seconds_since(start) < 5);
  }
}

TEST_CASE("an abort with more text than a record holds arrives shortened") {
  mpi_communicator comm = open();
  if (comm.size() == 1) return;
  if (comm.rank() == 0) {
    error reason = fail(errc::overlap, "ranks overlap: " + std::string(100'000, 'x')).with_key("first.weight");
    for (std::int32_t i = 0; i < 5000; ++i) {
      reason.ranks.push_back(i);
      reason.boxes.push_back({{i, 0}, {1, 8}});
    }
    comm.abort(reason);
  } else {
    result<void> status;
    while ((status = comm.status())) std::this_thread::yield();
    CHECK(status.error().code == errc::overlap);
    CHECK(status.error().key == "first.weight");
    CHECK_THAT(status.error().message, ContainsSubstring("ranks overlap: xxxxx") && ContainsSubstring("x..."));
    CHECK(status.error().ranks.size() > 4);
    CHECK(status.error().boxes.size() > 1);
  }
}

TEST_CASE("the trace says what this rank does and did") {
  mpi_communicator comm = open();
  REQUIRE(comm.all_gather({}, within(30)));
  CHECK_THAT(comm.trace(),
             ContainsSubstring("rank " + std::to_string(comm.rank()) + ": ") && ContainsSubstring("all_gather"));
}

TEST_CASE("a deadline that passes gives every rank an error that names who was waited for") {
  for (const mpi_options& options : modes) {
    mpi_communicator comm = open(options);
    if (comm.size() == 1) return;
    std::vector<std::byte> bytes(1 << 20);
    const auto start = std::chrono::steady_clock::now();
    result<void> done;
    if (comm.rank() == 0) {
      done = exchange(comm, {}, {{1, bytes}}, within(0.3, 8));
      CHECK(seconds_since(start) >= 0.29);
    } else {
      while (comm.status()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      done = exchange(comm, {}, {}, {});
    }
    CHECK(seconds_since(start) < 1.3);
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::deadline_exceeded);
    CHECK_THAT(
        to_string(done.error()),
        StartsWith("rank 0 timed out after ") &&
            EndsWith(" waiting for messages from rank 1 in an exchange (tag 8) (rank 1): found rank 1 has never sent a "
                     "message"));
  }
}

TEST_CASE("a cancelled wait returns at once, and its peers hear of it") {
  for (const bool before : {true, false}) {
    mpi_communicator comm = open();
    if (comm.size() == 1) return;
    std::vector<std::byte> bytes(100'000);
    std::stop_source stop;
    result<void> done;
    if (comm.rank() == 0) {
      if (before) stop.request_stop();
      std::jthread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        stop.request_stop();
      });
      call_options options = within(20);
      options.cancel = stop.get_token();
      done = exchange(comm, {{1, bytes}}, {}, options);
    } else {
      done = exchange(comm, {}, {{0, bytes}}, within(20, 1));  // another tag: never sent
    }
    REQUIRE_FALSE(done);
    CHECK(done.error().code == errc::cancelled);
    CHECK_THAT(to_string(done.error()), ContainsSubstring("rank 0 was cancelled"));
  }
}

TEST_CASE("after a deadline no late message touches the receiver's memory") {
  for (const mpi_options& options : modes)
    for (const std::size_t size : {std::size_t{500}, std::size_t{3'000'000}}) {
      mpi_communicator comm = open(options);
      mpi_communicator sound = open();
      if (comm.size() == 1) return;
      std::vector<std::byte> bytes(size, comm.rank() == 0 ? std::byte{1} : std::byte{2});
      if (comm.rank() == 0) {
        REQUIRE_FALSE(exchange(comm, {}, {{1, bytes}}, within(0.05)));
        const std::vector<std::byte> before = bytes;
        REQUIRE(sound.all_gather({}, within(20)));
        REQUIRE(sound.all_gather({}, within(20)));
        CHECK_FALSE(comm.status());
        CHECK(bytes == before);
      } else {
        REQUIRE(sound.all_gather({}, within(20)));
        if (comm.rank() == 1) CHECK_FALSE(exchange(comm, {{0, bytes}}, {}, within(20)));
        REQUIRE(sound.all_gather({}, within(20)));
      }
    }
}

TEST_CASE("ranks that wait for one that let go of the communicator get an error, without a deadline") {
  std::optional<mpi_communicator> comm = open();
  if (comm->size() == 1 || comm->readable_peers() == 0) return;
  std::vector<std::byte> bytes(10);
  if (comm->rank() == 0) {
    comm.reset();
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto done = exchange(*comm, {}, {{0, bytes}}, {});
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::communication);
  CHECK(done.error().ranks == std::vector<std::int32_t>{0});
  CHECK_THAT(to_string(done.error()), ContainsSubstring("which has ended or destroyed the communicator"));
  CHECK(seconds_since(start) < 2);
}
