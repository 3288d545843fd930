// SPDX-License-Identifier: Apache-2.0
// Tests a call that goes on while its server answers nothing. It soon stops asking. After an answer, and in the next
// call, requests have all of their attempts again.
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <http_server.hpp>
#include <string>
#include <utility>
#include <vector>
#include "http_reads.hpp"

import shardmesh.core;
import shardmesh.remote;

using namespace shardmesh;
using namespace shardmesh::remote;
using namespace http_reads;

namespace {

// How often each of `count` requests is sent, one after another.
std::vector<std::size_t> sent_for_each(http_server::server& server, const http_client& client, std::size_t count) {
  std::vector<std::size_t> made;
  std::size_t before = server.seen().size();
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(!client.send({.url = server.url("/down")}, 100));
    const std::size_t now = server.seen().size();
    made.push_back(now - before);
    before = now;
  }
  return made;
}

}  // namespace

TEST_CASE("a call asks a server that answers nothing with all attempts, then once each, and then no more") {
  http_server::server server;
  server.on("/down", [](const http_server::request&) { return http_server::answer(500, "down"); });
  server.put("/object", random_text(1000, 3));
  const http_client client(patient());
  using counts = std::vector<std::size_t>;
  {
    const detail::call_scope call({});
    CHECK(sent_for_each(server, client, 6) == counts{4, 1, 1, 1, 0, 0});
    const auto refused = client.send({.url = server.url("/down?signature=secret")}, 100);
    REQUIRE(!refused);
    CHECK(refused.error().code == errc::io);
    CHECK(refused.error().file == server.url("/down"));
    CHECK(refused.error().message ==
          "was not requested, because 4 other requests of this call to the server failed; the last one: the server "
          "cannot answer the request now");
    CHECK(refused.error().hint == "try again when the server answers");
    guarded memory(100);
    const std::vector<http_range> ranges{{0, memory.out()}};
    const auto read = client.read({.url = server.url("/object")}, ranges, "", 1000);
    REQUIRE(!read);
    CHECK(read.error().message == refused.error().message);
    CHECK(memory.is_intact());
  }
  const detail::call_scope next({});
  CHECK(sent_for_each(server, client, 2) == counts{4, 1});
  CHECK(client.send({.url = server.url("/none")}, 100));  // an answer, of status 404
  CHECK(sent_for_each(server, client, 2) == counts{4, 1});
}

TEST_CASE("calls without a scope, and requests to other servers, have all attempts") {
  http_server::server down, other;
  for (http_server::server* one : {&down, &other})
    one->on("/down", [](const http_server::request&) { return http_server::answer(500, "down"); });
  const http_client client(patient());
  using counts = std::vector<std::size_t>;
  CHECK(sent_for_each(down, client, 2) == counts{4, 4});
  const detail::call_scope call({});
  CHECK(sent_for_each(down, client, 2) == counts{4, 1});
  CHECK(sent_for_each(other, client, 2) == counts{4, 1});
}

TEST_CASE("a read that fails in all attempts counts, and a read that succeeds is an answer") {
  http_server::server server;
  server.on("/down", [](const http_server::request&) { return http_server::answer(500, "down"); });
  server.put("/object", random_text(1000, 4));
  const http_client client(patient());
  const detail::call_scope call({});
  guarded memory(100);
  const std::vector<http_range> ranges{{0, memory.out()}};
  const auto sends = [&](const char* path) {
    const std::size_t before = server.seen().size();
    const bool is_read = static_cast<bool>(client.read({.url = server.url(path)}, ranges, "", 1000));
    return std::pair(is_read, server.seen().size() - before);
  };
  CHECK(sends("/down") == std::pair(false, std::size_t{4}));
  CHECK(sends("/down") == std::pair(false, std::size_t{1}));
  CHECK(sends("/object") == std::pair(true, std::size_t{1}));
  CHECK(sends("/down") == std::pair(false, std::size_t{4}));
}
