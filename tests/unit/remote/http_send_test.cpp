// SPDX-License-Identifier: Apache-2.0
// Tests single requests of the client: answers, repetitions, bodies, signatures, and redirects.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <http_server.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "http_reads.hpp"

import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace http_reads;
using http_server::fault;
using clock_type = std::chrono::steady_clock;

TEST_CASE("answers below status 500 are returned, and later ones repeated") {
  http_server::server server;
  int left = 2;
  server.on("/later", [&](const http_server::request&) {
    return left-- > 0 ? http_server::answer(503, "wait", "Retry-After: 1\r\n") : http_server::answer(200, "done");
  });
  const http_client client(patient());
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
  const http_client client(patient());
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
  const http_client client(patient());
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
  const http_client client(patient());
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
  const http_client client(patient());
  CHECK(client.send({.url = server.url("/object")}, 7));
  const auto answer = client.send({.url = server.url("/object")}, 6);
  REQUIRE(!answer);
  CHECK(answer.error().code == errc::bad_format);
  CHECK(answer.error().expected == "at most 6 bytes");
}

TEST_CASE("an answer with too many headers is an error that says so") {
  http_server::server server;
  std::string headers;
  for (int i = 0; i < 70; ++i) headers += "X-Long-" + std::to_string(i) + ": " + std::string(4000, 'x') + "\r\n";
  server.on("/object", [&](const http_server::request&) { return http_server::answer(200, "content", headers); });
  const auto answer = http_client(patient()).send({.url = server.url("/object")}, 100);
  REQUIRE(!answer);
  CHECK(to_string(answer.error()).find("the answer has more than 256 KiB of headers") != std::string::npos);
}

TEST_CASE("a request is signed before each attempt, and repaired at most twice") {
  http_server::server server;
  server.on("/object", [](const http_server::request& asked) {
    return asked.header("authorization") == "2" ? http_server::answer(200, "done")
                                                : http_server::answer(403, "<Code>Expired</Code>");
  });
  const http_client client(patient());
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
  const http_client client(patient());
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
  const http_client client(patient());
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
  http_options options = patient();
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
