// SPDX-License-Identifier: Apache-2.0
// Tests credentials that are kept and refreshed, by one search at a time. The server is in memory, and the clock is a
// number.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <watchdog.hpp>

import shardmesh.remote;
import shardmesh.test.fake_http;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace std::chrono_literals;
using test::environment_of;
using test::fake_http;

namespace {

constexpr const char* request = "GET http://localhost/";

// A provider whose credentials come from a container's endpoint.
struct provided {
  std::shared_ptr<std::atomic<std::int64_t>> seconds = std::make_shared<std::atomic<std::int64_t>>(0);  // since 10:00
  fake_http servers;
  credential_provider provider{
      {.variables = environment_of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost/"}}),
       .call = servers.call(),
       .clock = [now = seconds] {
         return parse_utc_time("2026-11-24T10:00:00Z").value() + std::chrono::seconds(*now);
       }}};

  static std::string answer(const std::string& key, const std::string& expiration) {
    return R"({"AccessKeyId": ")" + key + R"(", "SecretAccessKey": "hunter2", "Token": "t", "Expiration": ")" +
           expiration + R"("})";
  }
  void serve(const std::string& key, const std::string& expiration) {
    servers.serve(request, 200, answer(key, expiration));
  }
  std::string found(const call_options& call = {}) {
    const auto made = provider.credentials(call);
    return made ? made->access_key : to_string(made.error());
  }
  std::size_t searches() const { return servers.requests().size(); }
};

}  // namespace

TEST_CASE("credentials are found once, and again five minutes before they expire") {
  provided at;
  at.serve("first", "2026-11-24T11:00:00Z");
  CHECK(at.found() == "first");
  at.serve("second", "2026-11-24T12:00:00Z");
  *at.seconds = 3299;  // 10:54:59
  CHECK(at.found() == "first");
  CHECK(at.searches() == 1);
  *at.seconds = 3300;  // 10:55:00
  CHECK(at.found() == "second");
  CHECK(at.found() == "second");
  CHECK(at.searches() == 2);
}

TEST_CASE("while a refresh fails, the old credentials are used until they expire") {
  provided at;
  at.serve("first", "2026-11-24T11:00:00Z");
  CHECK(at.found() == "first");
  at.servers.serve(request, 403, "");
  *at.seconds = 3300;
  CHECK(at.found() == "first");
  CHECK(at.searches() == 2);
  *at.seconds = 3329;
  CHECK(at.found() == "first");
  CHECK(at.searches() == 2);  // at most one search in thirty seconds
  *at.seconds = 3330;
  CHECK(at.found() == "first");
  CHECK(at.searches() == 3);
  *at.seconds = 3600;
  const std::string error = at.found();
  CHECK(error == "the container endpoint http://localhost gave no credentials: expected status 200, found status 403");
  at.serve("second", "2026-11-24T12:00:00Z");
  CHECK(at.found() == "second");
}

TEST_CASE("credentials that live less than five minutes are not searched for every request") {
  provided at;
  at.serve("short", "2026-11-24T10:01:00Z");
  CHECK(at.found() == "short");
  CHECK(at.found() == "short");
  CHECK(at.searches() == 1);
  *at.seconds = 30;
  CHECK(at.found() == "short");
  CHECK(at.searches() == 2);
}

TEST_CASE("credentials that have expired already are an error without their secret") {
  provided at;
  at.serve("old", "2026-11-24T09:00:00Z");
  CHECK(at.found() ==
        "the credentials of container endpoint http://localhost expired at 2026-11-24 09:00:00 UTC; renew them");
}

TEST_CASE("discarded credentials are searched again, unless others were found") {
  provided at;
  at.serve("first", "2026-11-24T11:00:00Z");
  const aws_credentials first = at.provider.credentials().value();
  at.serve("second", "2026-11-24T11:00:00Z");
  at.provider.discard(first);
  CHECK(at.found() == "second");
  at.provider.discard(first);  // a late refusal
  CHECK(at.found() == "second");
  CHECK(at.searches() == 2);
}

TEST_CASE("threads that need credentials at once share one search") {
  const watchdog limit(60s);
  provided at;
  constexpr int threads = 8;
  std::latch started(threads);
  at.servers.serve(request, [&](const http_call_request&) {
    started.wait();
    return result<http_call_response>(http_call_response{200, provided::answer("one", "2026-11-24T11:00:00Z")});
  });
  std::vector<std::string> found(threads);
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i)
      running.emplace_back([&, i] {
        started.count_down();
        found[static_cast<std::size_t>(i)] = at.found();
      });
  }
  CHECK(found == std::vector<std::string>(threads, "one"));
  CHECK(at.searches() == 1);
}

TEST_CASE("a thread that waits for another's search keeps its own deadline and its own cancellation") {
  const watchdog limit(60s);
  provided at;
  std::latch asked(1), released(1);
  at.servers.serve(request, [&](const http_call_request&) {
    asked.count_down();
    released.wait();
    return result<http_call_response>(http_call_response{200, provided::answer("one", "2026-11-24T11:00:00Z")});
  });
  std::string first;
  {
    const std::jthread searching([&] { first = at.found(); });
    asked.wait();
    CHECK(at.found({.within = 1ms}) == "the credential search's deadline has passed");
    std::stop_source stop;
    stop.request_stop();
    CHECK(at.found({.cancel = stop.get_token()}) == "the credential search was cancelled");
    released.count_down();
  }
  CHECK(first == "one");
  CHECK(at.searches() == 1);
}

TEST_CASE("a cancelled search does not fail the threads that wait for it") {
  const watchdog limit(60s);
  provided at;
  std::stop_source stop;
  std::latch asked(1);
  std::atomic<int> count = 0;
  at.servers.serve(request, [&](const http_call_request& sent) -> result<http_call_response> {
    if (count++ > 0) return http_call_response{200, provided::answer("two", "2026-11-24T11:00:00Z")};
    asked.count_down();
    while (!sent.cancel.stop_requested()) std::this_thread::yield();
    return fail(errc::cancelled, "the request was cancelled");
  });
  std::string first, second;
  {
    const std::jthread searching([&] { first = at.found({.cancel = stop.get_token()}); });
    asked.wait();
    const std::jthread waiting([&] { second = at.found(); });
    stop.request_stop();
  }
  CHECK(first == "the credential search was cancelled");
  CHECK(second == "two");
}
