// SPDX-License-Identifier: Apache-2.0
// Tests the client against a server with faults: right bytes or one clear error, and always in time.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <forked_child.hpp>
#include <http_server.hpp>
#include <memory>
#include <optional>
#include <random>
#include <random_seed.hpp>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using http_server::fault;
using std::chrono::milliseconds;
using clock_type = std::chrono::steady_clock;

namespace {

// Short times, so that faults are noticed within a test.
http_options impatient() {
  return {.connections = 8, .stall = milliseconds(250), .total = std::chrono::seconds(20), .attempts = 4};
}

std::string random_text(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string made(size, '\0');
  for (char& c : made) c = static_cast<char>(random());
  return made;
}

// Memory with a guard on both sides.
class guarded {
 public:
  explicit guarded(std::size_t size) : bytes_(size + 2 * guard, std::byte{0xAB}) {}
  std::span<std::byte> out() { return std::span(bytes_).subspan(guard, bytes_.size() - 2 * guard); }
  std::string_view text() { return {reinterpret_cast<const char*>(out().data()), out().size()}; }
  bool is_intact() const {
    const auto untouched = [](std::byte b) { return b == std::byte{0xAB}; };
    return std::all_of(bytes_.begin(), bytes_.begin() + guard, untouched) &&
           std::all_of(bytes_.end() - guard, bytes_.end(), untouched);
  }

 private:
  static constexpr std::ptrdiff_t guard = 64;
  std::vector<std::byte> bytes_;
};

result<void> read_one(const http_client& client, const std::string& url, std::int64_t offset, std::span<std::byte> out,
                      std::int64_t total, const call_options& call = {}, const std::string& version = "\"1\"") {
  const http_range range{offset, out};
  return client.read({.url = url}, std::span(&range, 1), version, total, {}, call);
}

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

TEST_CASE("a range arrives in its memory, and no other byte is written") {
  const watchdog dog{std::chrono::seconds(60)};
  http_server::server server;
  const std::string content = random_text(100'000, 1);
  server.put("/object", content);
  const http_client client(impatient());
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
  const http_client client(impatient());
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

TEST_CASE("threads share one client") {
  const watchdog dog{std::chrono::seconds(120)};
  http_server::server server;
  const std::string content = random_text(400'000, 7);
  server.put("/object", content);
  const http_client client(impatient());
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
  http_options options = impatient();
  options.stall = std::chrono::seconds(10);
  const http_client client(options);
  guarded memory(content.size());
  REQUIRE(read_one(client, server.url("/object"), 0, memory.out(), static_cast<std::int64_t>(content.size())));
  CHECK((memory.text() == content));  // without printing 20 MiB
  CHECK(memory.is_intact());
  std::vector<std::string> ranges;
  for (const auto& one : server.seen()) ranges.push_back(one.header("range"));
  std::sort(ranges.begin(), ranges.end());
  CHECK(ranges == std::vector<std::string>{"bytes=0-8388607", "bytes=16777216-20971524", "bytes=8388608-16777215"});
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

TEST_CASE("an answer with status 200 counts when the whole object was requested") {
  http_server::server server;
  server.put("/object", "content");
  server.always(fault::whole_object);
  const http_client client(impatient());
  guarded memory(7);
  REQUIRE(read_one(client, server.url("/object"), 0, memory.out(), 7));
  CHECK(memory.text() == "content");
}

TEST_CASE("an object that was replaced is an error, also behind a weak ETag") {
  http_server::server server;
  const http_client client(impatient());
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
  const http_client client(impatient());
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

TEST_CASE("answers below status 500 are returned, and later ones repeated") {
  http_server::server server;
  int left = 2;
  server.on("/later", [&](const http_server::request&) {
    return left-- > 0 ? http_server::answer(503, "wait", "Retry-After: 1\r\n") : http_server::answer(200, "done");
  });
  const http_client client(impatient());
  const auto missing = client.send({.url = server.url("/none")}, 100);
  REQUIRE(missing);
  CHECK(missing->status == 404);
  CHECK(server.seen().size() == 1);
  const auto began = clock_type::now();
  const auto later = client.send({.url = server.url("/later")}, 100);
  REQUIRE(later);
  CHECK(later->status == 200);
  CHECK(std::string(reinterpret_cast<const char*>(later->body.data()), later->body.size()) == "done");
  CHECK(clock_type::now() - began >= std::chrono::seconds(2));
}

TEST_CASE("bytes that begin no answer count as a failed connection, and the request is repeated") {
  http_server::server server;
  int left = 1;
  server.on("/late", [&](const http_server::request&) {
    return left-- > 0 ? std::string("the rest of an earlier answer\r\n\r\n") : http_server::answer(200, "body");
  });
  const http_client client(impatient());
  const auto answer = client.send({.url = server.url("/late")}, 100);
  REQUIRE(answer);
  CHECK(answer->status == 200);
  CHECK(server.seen().size() == 2);
}

TEST_CASE("a connection on which bytes of an earlier answer wait is not used again") {
  http_server::server server;
  const std::string body = random_text(3 << 20, 11);  // libcurl notices the copy of a short answer
  server.on("/twice", [&](const http_server::request&) {
    return http_server::answer(200, body) + http_server::answer(200, body);
  });
  server.on("/other", [](const http_server::request&) { return http_server::answer(200, "other"); });
  const http_client client(impatient());
  for (int round = 0; round != 5; ++round) {
    const auto twice = client.send({.url = server.url("/twice")}, 4 << 20);
    REQUIRE(twice);
    CHECK(twice->body.size() == body.size());
    const auto other = client.send({.url = server.url("/other")}, 100);
    REQUIRE(other);
    CHECK(std::string(reinterpret_cast<const char*>(other->body.data()), other->body.size()) == "other");
  }
}

TEST_CASE("the body of a request is sent again with each attempt") {
  http_server::server server;
  const std::string body = random_text(300'000, 10);
  int left = 2;
  std::vector<bool> equal;
  server.on("/object", [&](const http_server::request& asked) {
    equal.push_back(asked.method == "PUT" && asked.body == body);
    return http_server::answer(left-- > 0 ? 500 : 200, "");
  });
  const http_client client(impatient());
  const http_request request{.method = "PUT",
                             .url = server.url("/object"),
                             .headers = {{"x-empty", ""}},
                             .body = std::as_bytes(std::span(body))};
  const auto answer = client.send(request, 100);
  REQUIRE(answer);
  CHECK(answer->status == 200);
  const auto seen = server.seen();
  CHECK(equal == std::vector<bool>{true, true, true});
  for (const auto& one : seen) {
    CHECK(one.headers.contains("x-empty"));
    CHECK(!one.headers.contains("expect"));
    CHECK(one.header("content-length") == "300000");
  }
}

TEST_CASE("an answer that is too long is an error") {
  http_server::server server;
  server.put("/object", "content");
  const http_client client(impatient());
  CHECK(client.send({.url = server.url("/object")}, 7));
  const auto answer = client.send({.url = server.url("/object")}, 6);
  REQUIRE(!answer);
  CHECK(answer.error().code == errc::bad_format);
  CHECK(answer.error().expected == "at most 6 bytes");
}

TEST_CASE("a request is signed before each attempt, and repaired at most twice") {
  http_server::server server;
  server.on("/object", [](const http_server::request& asked) {
    return asked.header("authorization") == "2" ? http_server::answer(200, "done")
                                                : http_server::answer(403, "<Code>Expired</Code>");
  });
  const http_client client(impatient());
  int signature = 0, recoveries = 0;
  std::string found;
  http_request request{.url = server.url("/object")};
  request.recover = [&](const http_request& sent, const http_response& answer) {
    found.assign(reinterpret_cast<const char*>(answer.body.data()), answer.body.size());
    CHECK(sent.headers.back() == std::pair<std::string, std::string>("Authorization", std::to_string(signature)));
    return ++recoveries > 0;
  };
  const http_signer sign = [&](http_request& sent) -> result<void> {
    sent.headers.emplace_back("Authorization", std::to_string(++signature));
    return {};
  };
  const auto repaired = client.send(request, 100, sign);
  REQUIRE(repaired);
  CHECK(repaired->status == 200);
  CHECK(found == "<Code>Expired</Code>");
  CHECK(recoveries == 1);
  const auto refused = client.send(request, 100, sign);
  REQUIRE(refused);
  CHECK(refused->status == 403);
  CHECK(recoveries == 3);
}

TEST_CASE("a redirect is followed without the authorization of another host") {
  http_server::server first, second;
  second.put("/object", "content");
  first.put("/object", "other");
  first.always(fault::redirect);
  first.redirect_to(second.url("/object"));
  const http_client client(impatient());
  http_request request{
      .url = first.url("/object"), .headers = {{"Authorization", "Bearer secret"}}, .follow_redirects = true};
  guarded memory(7);
  const http_range range{0, memory.out()};
  REQUIRE(client.read(request, std::span(&range, 1), "\"1\"", 7));
  CHECK(memory.text() == "content");
  REQUIRE(second.seen().size() == 1);
  CHECK(first.seen()[0].header("authorization") == "Bearer secret");
  CHECK(!second.seen()[0].headers.contains("authorization"));
  request.follow_redirects = false;
  const auto answer = client.send(request, 100);
  REQUIRE(answer);
  CHECK(answer->status == 302);
  CHECK(answer->header("location") == second.url("/object"));
}

TEST_CASE("redirects in a circle and to other protocols are errors") {
  http_server::server server;
  server.put("/object", "content");
  const http_client client(impatient());
  const http_request request{.url = server.url("/object"), .follow_redirects = true};
  server.always(fault::redirect_in_circle);
  const auto circle = client.send(request, 100);
  REQUIRE(!circle);
  CHECK(circle.error().code == errc::io);
  CHECK(server.seen().size() == 11);
  server.always(fault::redirect);
  server.redirect_to("file:///etc/passwd");
  const auto file = client.send(request, 100);
  REQUIRE(!file);
  CHECK(file.error().hint == "redirects from https to http, and other protocols, are not followed");
}

TEST_CASE("headers with line breaks, other protocols, and closed ports are errors") {
  std::string closed;
  {
    const http_server::server server;
    closed = server.url("/object");
  }
  http_options options = impatient();
  options.attempts = 2;
  const http_client client(options);
  const auto broken = client.send({.url = closed, .headers = {{"x", "a\r\nb: c"}}}, 100);
  REQUIRE(!broken);
  CHECK(broken.error().message == "the request failed: a header of the request has a line break or no name");
  const auto file = client.send({.url = "file:///etc/passwd"}, 100);
  REQUIRE(!file);
  CHECK(file.error().code == errc::io);
  const auto refused = client.send({.url = closed}, 100);
  REQUIRE(!refused);
  CHECK(refused.error().code == errc::io);
  CHECK(refused.error().file == closed);
  CHECK(refused.error().message.ends_with("(the last of 2 attempts)"));
}
