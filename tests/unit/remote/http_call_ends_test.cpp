// SPDX-License-Identifier: Apache-2.0
// Tests how calls of the client end early: deadlines, cancellation, destruction, and a fork.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <forked_child.hpp>
#include <http_server.hpp>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <watchdog.hpp>
#include "http_reads.hpp"

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace http_reads;
using http_server::fault;
using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;

TEST_CASE("a deadline is kept to within a second, whatever the server does") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  server.put("/object", random_text(60'000, 4));
  http_options options = impatient();
  options.stall = std::chrono::seconds(30);
  for (const fault one : {fault::stall_at_once, fault::stall, fault::drip, fault::endless_headers, fault::unavailable,
                          fault::reset_at_once}) {
    INFO("fault " << static_cast<int>(one));
    server.always(one);
    options.attempts = 1000;
    const http_client client(options);
    guarded memory(10'000);
    const auto began = clock_type::now();
    const auto done = read_one(client, server.url("/object"), 0, memory.out(), 60'000, {.within = milliseconds(300)});
    CHECK(clock_type::now() - began < milliseconds(1300));
    REQUIRE(!done);
    CHECK(done.error().code == errc::deadline_exceeded);
    CHECK(done.error().file == server.url("/object"));
    CHECK(memory.is_intact());

    const auto again = clock_type::now();
    const auto sent = client.send({.url = server.url("/object")}, 100'000, {}, {.within = milliseconds(300)});
    CHECK(clock_type::now() - again < milliseconds(1300));
    REQUIRE(!sent);
    CHECK(sent.error().code == errc::deadline_exceeded);
  }
}

TEST_CASE("a cancelled call ends at once") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  server.put("/object", random_text(60'000, 5));
  server.always(fault::stall);
  http_options options = impatient();
  options.stall = std::chrono::seconds(30);
  const http_client client(options);
  std::stop_source stop;
  guarded memory(10'000);
  std::optional<result<void>> done;
  std::jthread caller(
      [&] { done = read_one(client, server.url("/object"), 0, memory.out(), 60'000, {.cancel = stop.get_token()}); });
  while (server.seen().empty()) std::this_thread::yield();
  const auto began = clock_type::now();
  stop.request_stop();
  caller.join();
  CHECK(clock_type::now() - began < std::chrono::seconds(1));
  REQUIRE(!*done);
  CHECK(done->error().code == errc::cancelled);
  CHECK(memory.is_intact());
}

TEST_CASE("the destruction of a client ends its calls") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  server.put("/object", random_text(60'000, 6));
  server.always(fault::stall);
  http_options options = impatient();
  options.stall = std::chrono::seconds(30);
  auto client = std::make_unique<http_client>(options);
  guarded memory(10'000);
  std::optional<result<void>> done;
  std::jthread caller(
      [&, used = client.get()] { done = read_one(*used, server.url("/object"), 0, memory.out(), 60'000); });
  while (server.seen().empty()) std::this_thread::yield();
  client.reset();
  caller.join();
  REQUIRE(!*done);
  CHECK(done->error().code == errc::cancelled);
}

TEST_CASE("a forked child cannot use its copy of a client, and can use its own") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  server.put("/object", "content");
  auto client = std::make_unique<http_client>(impatient());
  const http_request request{.url = server.url("/object")};
  REQUIRE(client->send(request, 100));
  CHECK(status_of_child([&] {
          const auto refused = client->send(request, 100);
          if (refused || refused.error().code != errc::invalid_argument) return 1;
          client.reset();
          const http_client own(impatient());
          const auto answer = own.send(request, 100);
          return answer && answer->body.size() == 7 ? 0 : 2;
        }) == 0);
  CHECK(client->send(request, 100));
}
