// SPDX-License-Identifier: Apache-2.0
// Tests reads of the client: which requests it sends, and which bytes arrive.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <http_server.hpp>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>
#include "http_reads.hpp"

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace http_reads;
using http_server::fault;

TEST_CASE("a range arrives in its memory, and no other byte is written") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  const std::string content = random_text(100'000, 1);
  server.put("/object", content);
  const http_client client(patient());
  guarded memory(1000);
  REQUIRE(read_one(client, server.url("/object"), 12'345, memory.out(), 100'000));
  CHECK(memory.text() == content.substr(12'345, 1000));
  CHECK(memory.is_intact());
  const auto seen = server.seen();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].method == "GET");
  CHECK(seen[0].header("range") == "bytes=12345-13344");
  CHECK(seen[0].header("if-match") == "\"1\"");
  CHECK(seen[0].header("accept-encoding") == "identity");
}

TEST_CASE("a thousand random ranges equal those of the object") {
  const watchdog dog{std::chrono::seconds(120)};
  http_server::server server;
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  const std::string content = random_text(300'000, seed);
  server.put("/object", content);
  const http_client client(patient());
  std::mt19937_64 random(seed);
  for (int round = 0; round != 50; ++round) {
    std::vector<guarded> memories;
    std::vector<http_range> ranges;
    for (int i = 0; i != 20; ++i) {
      const std::size_t offset = random() % (content.size() + 1);
      const std::size_t size = random() % std::min<std::size_t>(content.size() - offset + 1, 20'000);
      memories.emplace_back(size);
      ranges.push_back({static_cast<std::int64_t>(offset), {}});
    }
    for (std::size_t i = 0; i != ranges.size(); ++i) ranges[i].out = memories[i].out();
    REQUIRE(client.read({.url = server.url("/object")}, ranges, "\"1\"", 300'000));
    for (std::size_t i = 0; i != ranges.size(); ++i) {
      const auto offset = static_cast<std::size_t>(ranges[i].offset);
      CHECK(memories[i].text() == std::string_view(content).substr(offset, ranges[i].out.size()));
      CHECK(memories[i].is_intact());
    }
  }
}

TEST_CASE("threads share one client") {
  const watchdog dog{std::chrono::seconds(120)};
  http_server::server server;
  const std::string content = random_text(400'000, 7);
  server.put("/object", content);
  const http_client client(patient());
  std::vector<std::string> wrong(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t != wrong.size(); ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i != 40; ++i) {
          const std::size_t offset = (t * 40 + i) * 1000;
          guarded memory(1000);
          const auto done =
              read_one(client, server.url("/object"), static_cast<std::int64_t>(offset), memory.out(), 400'000);
          if (!done) wrong[t] = to_string(done.error());
          if (done && memory.text() != std::string_view(content).substr(offset, 1000)) wrong[t] = "other bytes";
        }
      });
  }
  CHECK(wrong == std::vector<std::string>(8));
}

TEST_CASE("a long range is cut into parts of 8 MiB") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  const std::string content = random_text((20 << 20) + 5, 8);
  server.put("/object", content);
  const http_client client(patient());
  guarded memory(content.size());
  REQUIRE(read_one(client, server.url("/object"), 0, memory.out(), static_cast<std::int64_t>(content.size())));
  CHECK((memory.text() == content));  // without printing 20 MiB
  CHECK(memory.is_intact());
  std::vector<std::string> ranges;
  for (const auto& one : server.seen()) ranges.push_back(one.header("range"));
  std::sort(ranges.begin(), ranges.end());
  CHECK(ranges == std::vector<std::string>{"bytes=0-8388607", "bytes=16777216-20971524", "bytes=8388608-16777215"});
}

TEST_CASE("an answer with status 200 counts when the whole object was requested") {
  http_server::server server;
  server.put("/object", "content");
  server.always(fault::whole_object);
  const http_client client(patient());
  guarded memory(7);
  REQUIRE(read_one(client, server.url("/object"), 0, memory.out(), 7));
  CHECK(memory.text() == "content");
}

TEST_CASE("an object that was replaced is an error, also behind a weak ETag") {
  http_server::server server;
  const http_client client(patient());
  for (const std::string mark : {"", "W/"}) {
    server.put("/object", "content", mark + "\"2\"");
    guarded memory(4);
    CHECK(read_one(client, server.url("/object"), 0, memory.out(), 7, {}, mark + "\"2\""));
    const auto done = read_one(client, server.url("/object"), 0, memory.out(), 7, {}, mark + "\"1\"");
    REQUIRE(!done);
    CHECK(done.error().code == errc::io);
    CHECK(done.error().message == "the object has changed since it was opened");
    CHECK(done.error().hint == "open it again");
  }
}

TEST_CASE("ranges outside of the object are refused without a request") {
  http_server::server server;
  const http_client client(patient());
  guarded memory(10);
  for (const auto& [offset, total] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{-1, 20}, {11, 20}, {0, 9}, {21, 20}}) {
    const auto done = read_one(client, server.url("/object"), offset, memory.out(), total);
    REQUIRE(!done);
    CHECK(done.error().code == errc::out_of_bounds);
  }
  CHECK(read_one(client, server.url("/object"), 20, memory.out().first(0), 20));
  CHECK(server.seen().empty());
}
