// SPDX-License-Identifier: Apache-2.0
// Tests reads against a server with faults: right bytes or one clear error, and always in time.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <http_server.hpp>
#include <iterator>
#include <random>
#include <random_seed.hpp>
#include <string>
#include <string_view>
#include <vector>
#include <watchdog.hpp>
#include "http_reads.hpp"

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace http_reads;
using http_server::fault;
using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;

namespace {

// The outcome of a read during which every request meets a fault, or one does.
struct outcome {
  fault one;
  bool passes;               // with one such fault, the read succeeds
  std::string_view message;  // when every request meets it
};

constexpr outcome outcomes[] = {
    {fault::reset_at_once, true, "the request failed"},
    {fault::reset, true, "the request failed"},
    {fault::close_early, true, "the request failed"},
    {fault::unavailable, true, "the server cannot answer the request now"},
    {fault::too_many, true, "the server cannot answer the request now"},
    {fault::internal_error, true, "the server cannot answer the request now"},
    {fault::forbidden, false, "the server refuses to send the object"},
    {fault::wrong_range, true, "the answer has another range"},
    {fault::wrong_total, false, "the object has another size"},
    {fault::unknown_total, true, "the answer has another range"},
    {fault::whole_object, false, "the server ignores ranges"},
    {fault::short_length, true, "the answer announces another length"},
    {fault::long_body, true, "the answer has more bytes than the request"},
    {fault::stall_at_once, true, "the server sent almost nothing for 250 ms"},
    {fault::stall, true, "the server sent almost nothing for 250 ms"},
    {fault::drip, true, "the server sent almost nothing for 250 ms"},
    {fault::endless_headers, true, "the server sent almost nothing for 250 ms"},
    {fault::other_etag, false, "the object has changed since it was opened"},
    {fault::no_etag, false, "the object has changed since it was opened"},
    {fault::gzip, false, "the server compresses the answer"},
    {fault::redirect, false, "the server refuses to send the object"},
};

}  // namespace

TEST_CASE("one fault at any request of a read ends in the right bytes or one clear error") {
  const watchdog dog{std::chrono::seconds(240)};
  const std::string content = random_text(60'000, 2);
  for (const outcome& expected : outcomes)
    for (std::size_t at = 0; at != 6; ++at) {
      http_server::server server;  // a server of an earlier round may still get requests of its client
      server.put("/object", content);
      server.redirect_to(server.url("/elsewhere"));
      INFO("fault " << static_cast<int>(expected.one) << " at request " << at);
      std::deque<fault> faults(at, fault::none);
      faults.push_back(expected.one);
      server.plan(faults);
      const http_client client(impatient());
      guarded memory(60'000);
      std::vector<http_range> ranges;
      for (std::size_t i = 0; i != 6; ++i)
        ranges.push_back({static_cast<std::int64_t>(10'000 * i), memory.out().subspan(10'000 * i, 10'000)});
      const auto done = client.read({.url = server.url("/object")}, ranges, "\"1\"", 60'000);
      CHECK(done.has_value() == expected.passes);
      if (done) CHECK(memory.text() == content);
      if (!done) CHECK(done.error().message.starts_with(expected.message));
      CHECK(memory.is_intact());
    }
}

TEST_CASE("a fault at every request is an error that names it, the URL, and the number of attempts") {
  const watchdog dog{std::chrono::seconds(240)};
  http_server::server server;
  server.put("/object", random_text(60'000, 3));
  server.redirect_to(server.url("/elsewhere"));
  for (const outcome& expected : outcomes) {
    INFO("fault " << static_cast<int>(expected.one));
    server.always(expected.one);
    server.forget_seen();
    const http_client client(impatient());
    guarded memory(10'000);
    const auto done = read_one(client, server.url("/object?secret"), 10'000, memory.out(), 60'000);
    REQUIRE(!done);
    CHECK(done.error().message.starts_with(expected.message));
    CHECK(done.error().file == server.url("/object"));
    CHECK(server.seen().size() == (expected.passes ? 4U : 1U));
    CHECK(done.error().message.ends_with("(the last of 4 attempts)") == expected.passes);
    CHECK(memory.is_intact());
  }
}

TEST_CASE("a random schedule of faults ends in the right bytes or an error") {
  const watchdog dog{std::chrono::seconds(240)};
  http_server::server server;
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  std::mt19937_64 random(seed);
  const std::string content = random_text(200'000, seed);
  server.put("/object", content);
  const fault passing[] = {fault::reset_at_once, fault::reset,        fault::close_early, fault::unavailable,
                           fault::wrong_range,   fault::short_length, fault::long_body,   fault::internal_error};
  const http_client client(impatient());
  int succeeded = 0;
  for (std::uint64_t round = 0; round != random_seed::rounds(40); ++round) {
    std::deque<fault> faults;
    for (int i = 0; i != 12; ++i)
      faults.push_back(random() % 3 != 0 ? fault::none : passing[random() % std::size(passing)]);
    server.plan(faults);
    guarded memory(content.size());
    std::vector<http_range> ranges;
    for (std::size_t i = 0; i != 10; ++i)
      ranges.push_back({static_cast<std::int64_t>(20'000 * i), memory.out().subspan(20'000 * i, 20'000)});
    const auto done = client.read({.url = server.url("/object")}, ranges, "\"1\"", 200'000);
    if (done) CHECK(memory.text() == content);
    succeeded += done ? 1 : 0;
    CHECK(memory.is_intact());
  }
  CHECK(succeeded > 20);
}

TEST_CASE("an answer with damaged headers ends in the right bytes or an error") {
  const watchdog dog{std::chrono::seconds(240)};
  const std::uint64_t seed = random_seed::seed();
  INFO("SHARDMESH_SEED=" << seed);
  const std::string content = random_text(5000, seed);
  std::mt19937_64 random(seed);
  http_server::server server;
  server.on("/object", [&](const http_server::request&) {
    std::string head =
        "HTTP/1.1 206 Status\r\nContent-Range: bytes 100-1099/5000\r\nContent-Length: 1000\r\nETag: \"1\"\r\n\r\n";
    // A line break more or less would move bytes between head and body, which no client can notice.
    const auto is_break = [](char c) { return c == '\r' || c == '\n'; };
    for (std::uint64_t i = random() % 3; i != 0; --i) {
      const std::size_t at = random() % head.size();
      const char other = static_cast<char>(random() % 2 == 0 ? random() : 32 + random() % 95);
      if (is_break(head[at]) || is_break(other)) continue;
      if (random() % 2 == 0)
        head[at] = other;
      else
        head.insert(at, 1, other);
    }
    return head + content.substr(100, 1000);
  });
  http_options options = impatient();
  options.stall = milliseconds(100);
  options.attempts = 1;
  const http_client client(options);
  int succeeded = 0;
  for (std::uint64_t round = 0; round != random_seed::rounds(200); ++round) {
    guarded memory(1000);
    const auto done = read_one(client, server.url("/object"), 100, memory.out(), 5000);
    if (done) CHECK(memory.text() == content.substr(100, 1000));
    succeeded += done ? 1 : 0;
    CHECK(memory.is_intact());
  }
  CHECK(succeeded > 0);
}

TEST_CASE("a straggling part is requested a second time") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  const std::string content = random_text(160'000, 9);
  server.put("/object", content);
  http_options options = impatient();
  options.stall = std::chrono::seconds(40);
  for (const fault one : {fault::stall_at_once, fault::stall}) {
    server.forget_seen();
    server.plan({fault::none, fault::none, one});
    const http_client client(options);
    guarded memory(content.size());
    std::vector<http_range> ranges;
    for (std::size_t i = 0; i != 16; ++i)
      ranges.push_back({static_cast<std::int64_t>(10'000 * i), memory.out().subspan(10'000 * i, 10'000)});
    const auto began = clock_type::now();
    REQUIRE(client.read({.url = server.url("/object")}, ranges, "\"1\"", 160'000));
    CHECK(clock_type::now() - began < std::chrono::seconds(20));
    CHECK(memory.text() == content);
    CHECK(memory.is_intact());
    CHECK(server.seen().size() == 17);
  }
}
